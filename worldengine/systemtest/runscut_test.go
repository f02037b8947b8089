package systemtest_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/alerts/alertstest"
	"worldengine/worldengine/runs"
)

// A run whose first events have expired is no longer kept, except by those who have read them, and
// raises no alert.
func TestARunExpiresInItsMiddle(t *testing.T) {
	raised := make(alertstest.Notified, 100)
	w := newCheckedWorld(t, worldengine.Config{AppendedRetention: 2 * time.Second,
		Notifier: raised})
	write := runevents.Write{
		EmittedAt: "2026-02-16T10:00:00.000Z", RunID: "planner-1", TenantID: "default",
		ProjectID:     "main",
		EnvironmentID: "local", PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1,
	}
	add := func(event runevents.EventType, attempt int64) int64 {
		write.EventID, write.EventType, write.LogicalAttemptID = uuid.NewString(), event, attempt
		write.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
			RunID: write.RunID, LogicalAttemptID: attempt, EventType: event,
			PlanID: "plan", PlanVersion: "1",
		})
		appended, err := w.engine.Runs().Append(t.Context(), "t", []runevents.Write{write})
		require.NoError(t, err)
		return appended[0].RunSeq
	}
	add(runevents.RunStarted, 1)
	run, err := w.engine.Runs().Get(t.Context(), "planner-1")
	require.NoError(t, err)
	require.Equal(t, runevents.RunRunning, run.Status)
	for told := int64(1); err == nil; told++ {
		require.Less(t, told, int64(400), "it expires")
		add("Noted", told)
		_, err = w.engine.Runs().Get(t.Context(), "planner-1")
		time.Sleep(50 * time.Millisecond) // the pace of the writer
	}
	last := add(runevents.RunPaused, 1)
	require.Greater(t, last, int64(2))
	require.ErrorIs(t, err, runs.ErrUnknownRun)
	_, err = w.engine.Runs().Events(t.Context(), "planner-1", 0, 10)
	require.ErrorIs(t, err, runs.ErrUnknownRun)
	page, err := w.engine.Runs().Events(t.Context(), "planner-1", last-1, 10)
	require.NoError(t, err, "whoever has read the others reads on")
	require.Len(t, page.Events, 1)
	require.Empty(t, w.pages(runs.RunFilter{}, 10))
	require.Empty(t, raised)
}
