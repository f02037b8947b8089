package logtest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/store/records"
)

// NewWrite is the nth valid write of the run "run".
func NewWrite(n int64) runevents.Write { return NewWriteIn("run", n) }

// NewWriteIn is the nth valid write of a run.
func NewWriteIn(runID string, n int64) runevents.Write {
	return Keyed(runevents.Write{
		EventID: uuid.NewString(), EventType: "Told", EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1, LogicalAttemptID: n, StepID: "build",
	})
}

// RunEvent is a write of an event of a run itself; payload "" for none.
func RunEvent(runID string, event runevents.EventType, payload string) runevents.Write {
	w := NewWriteIn(runID, 1)
	w.EventType, w.StepID = event, ""
	if payload != "" {
		w.Payload = []byte(payload)
	}
	return Keyed(w)
}

// Keyed returns a write with the idempotency key that it has to have.
func Keyed(w runevents.Write) runevents.Write {
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: w.LogicalAttemptID,
		EventType: w.EventType, PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}

// AppendEvents stores events of a run that no engine began behind those that the run has, as the append
// authority stores them.
func AppendEvents(t testing.TB, l *records.Log, townID string, writes ...runevents.Write) {
	t.Helper()
	runID := writes[0].RunID
	tail, err := l.Tail(t.Context(), runID, 0)
	require.NoError(t, err)
	plan, err := runlog.NewState(runID, runlog.AppendPolicy{}).Plan(writes)
	require.NoError(t, err)
	plan.Run.FirstSeq, plan.Run.AppendedBy = tail.Next, "anyone"
	_, err = l.CommitRun(t.Context(), &machine.Record{
		Kind: machine.KindAppended, TownID: townID, Run: &plan.Run, Inconsistent: plan.Inconsistent,
	}, tail.Guard)
	require.NoError(t, err)
}
