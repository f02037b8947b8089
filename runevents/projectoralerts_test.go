package runevents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestAlertsAreRaisedOnce(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepCompleted", "a"), of("RunResumed"),
		of("RunCompleted"), of("RunPaused"))
	store := storing(records...)
	w := watch(t, store, func(c *runevents.ProjectorConfig) { c.MaxRuns = 1 })
	want := []string{
		"INVALID_TRANSITION 02", "PROJECTOR_CAUSAL_VIOLATION 02", "INVALID_TRANSITION 03",
		"INVALID_TRANSITION 05",
	}
	w.apply(records...)
	require.Equal(t, want, w.codes())
	require.Equal(t, "2026-02-16T10:00:01.000Z", w.alerts[0].At)
	w.apply(records...)
	_, err := w.Resync(t.Context(), runevents.ResyncRequest{
		Mode: runevents.Full, RunID: identity.RunID,
	})
	require.ErrorIs(t, err, runevents.ErrNotAdvanced)
	w.apply(ofRun(executedRun(t), "another")...)
	_, ok := w.Snapshot(identity.RunID)
	require.False(t, ok, "forgotten")
	w.apply(records...)
	require.Equal(t, want, w.codes())

	w.apply(ofRun(records, "b")...)
	require.Len(t, w.alerts, 8, "another run, another alert")
}

func TestEveryAlertHasASeverity(t *testing.T) {
	t.Parallel()
	r := told(on("StepFailed", "a", 2))[0]
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"INVALID_TRANSITION": "P2",
		"PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3",
		"EVENT_BUS_DELIVERY_FAILED":  "P1", "PAUSE_DRAIN_TIMEOUT": "P3",
		"PLUGIN_LATE_ANSWER": "P1", "PLUGIN_STATE_INVALID": "P2", "APPLY_IN_DOUBT": "P1",
		"LOG_LOST": "P1",
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

// Two alerts are the same if their code, run and subject are equal.
func TestTheIDOfAnAlert(t *testing.T) {
	t.Parallel()
	a := runevents.Alert{Code: runevents.ApplyInDoubt, RunID: "r", DeadLetter: "d"}
	require.Equal(t, "APPLY_IN_DOUBT|r|d", a.ID())
	a.HandoffID = "h"
	require.Equal(t, "APPLY_IN_DOUBT|r|h", a.ID())
	a.EventID = "e"
	require.Equal(t, "APPLY_IN_DOUBT|r|e", a.ID())
	a = runevents.Alert{Code: runevents.PluginAbsent, RunID: "r", TownID: "t"}
	require.Equal(t, "PLUGIN_ABSENT|r|", a.ID())
	a.Since = "s"
	require.Equal(t, "PLUGIN_ABSENT|r|t|s", a.ID())
	a.HandoffID = "h"
	require.Equal(t, "PLUGIN_ABSENT|r|h|s", a.ID())
}
