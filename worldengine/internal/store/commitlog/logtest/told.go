package logtest

import (
	"github.com/google/uuid"

	"worldengine/runevents"
)

// Told is the nth valid write of the run "run".
func Told(n int64) runevents.Write {
	w := runevents.Write{
		EventID: uuid.NewString(), EventType: "Told", EmittedAt: "2026-02-16T10:00:00.123Z",
		RunID: "run", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1, LogicalAttemptID: n, StepID: "build",
	}
	w.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: w.RunID, StepID: w.StepID, LogicalAttemptID: n, EventType: w.EventType,
		PlanID: w.PlanID, PlanVersion: w.PlanVersion,
	})
	return w
}
