package fsck

import (
	"testing"

	"github.com/stretchr/testify/require"
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
