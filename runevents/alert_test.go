package runevents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// The contracts fix some severities; an unknown code has P2.
func TestAlertCode_Severity(t *testing.T) {
	t.Parallel()
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3", "EVENT_BUS_DELIVERY_FAILED": "P1", "UNKNOWN": "P2",
	} {
		require.Equal(t, want, code.Severity(), code)
	}
}

func TestAlert_ID(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]runevents.Alert{
		"C|r|":    {TownID: "t"},
		"C|r|t|s": {TownID: "t", Since: "s"},
		"C|r|d":   {DeadLetter: "d"},
		"C|r|h":   {DeadLetter: "d", HandoffID: "h"},
		"C|r|h|s": {TownID: "t", HandoffID: "h", Since: "s"},
		"C|r|e":   {DeadLetter: "d", HandoffID: "h", EventID: "e"},
		"C|r|7":   {EventID: "e", LogSeq: 7},
	} {
		a.Code, a.RunID = "C", "r"
		require.Equal(t, want, a.ID())
	}
}
