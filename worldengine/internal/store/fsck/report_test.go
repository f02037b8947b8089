package fsck

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
)

func TestReport_Advice(t *testing.T) {
	t.Parallel()
	inLog, inIndex := Finding{}, Finding{Kind: IndexDiffers}
	for name, c := range map[string]struct {
		findings []Finding
		advice   []string
	}{
		"nothing is wrong":  {nil, nil},
		"the log":           {[]Finding{inLog, inLog}, []string{adviceLog}},
		"the index":         {[]Finding{inIndex}, []string{adviceIndex}},
		"all, in one order": {[]Finding{inIndex, inLog}, []string{adviceLog, adviceIndex}},
	} {
		report := Report{World: "w", Findings: c.findings}
		require.Equal(t, c.advice, report.Advice(), name)
	}
}

// The report counts the records of each kind.
func TestCounts_Kinds(t *testing.T) {
	t.Parallel()
	var counts Counts
	for _, kind := range machine.Kinds() {
		require.NotNil(t, counts.counter(kind), kind)
	}
	require.Nil(t, counts.counter("unheard-of"))
}
