package fsck

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport_Advice(t *testing.T) {
	t.Parallel()
	inLog, waits, inIndex := Finding{}, Finding{Kind: LeftWaiting}, Finding{Kind: IndexDiffers}
	for name, c := range map[string]struct {
		findings []Finding
		advice   []string
	}{
		"nothing is wrong": {nil, nil},
		"the log":          {[]Finding{inLog, inLog}, []string{adviceLog}},
		"a run that waits": {[]Finding{waits}, []string{adviceLeftWaiting}},
		"the index":        {[]Finding{inIndex}, []string{adviceIndex}},
		"all, in one order": {[]Finding{inIndex, waits, inLog},
			[]string{adviceLog, adviceLeftWaiting, adviceIndex}},
	} {
		report := Report{World: "w", Findings: c.findings}
		require.Equal(t, c.advice, report.Advice(), name)
	}
}
