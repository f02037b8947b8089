package runevents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestNewAlert(t *testing.T) {
	t.Parallel()
	r := told(on("StepFailed", "a", 2))[0]
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"INVALID_TRANSITION": "P2",
		"PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3",
		"EVENT_BUS_DELIVERY_FAILED":  "P1", "PAUSE_DRAIN_TIMEOUT": "P3",
		"PLUGIN_LATE_ANSWER": "P1", "PLUGIN_STATE_INVALID": "P2", "APPLY_IN_DOUBT": "P1",
		"LOG_LOST": "P1", "UNKNOWN": "P2",
	} {
		require.Equal(t, runevents.Alert{
			Code: code, Severity: want, RunID: r.RunID, TenantID: r.TenantID,
			ProjectID:     r.ProjectID,
			EnvironmentID: r.EnvironmentID, EventID: r.EventID,
			EventType: "StepFailed", StepID: "a",
			LogicalAttemptID: 2, RunSeq: 1, PersistedAt: r.PersistedAt, Message: "m",
		}, runevents.NewAlert(code, &r, "m"))
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
