package emit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

var identity = runevents.Identity{
	RunID: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", TenantID: "default", ProjectID: "main",
	EnvironmentID: "local", PlanID: "plan_abc", PlanVersion: "2",
}

// newWrite returns a valid write of the run.
func newWrite(
	t testing.TB, event runevents.EventType, stepID string, attempt int64,
) runevents.Write {
	t.Helper()
	w, err := runevents.NewWrite(identity, runevents.Event{
		EventID: "5d1f0f4e-6a0b-4c4f-8c55-0f6d2f2f6a01", EventType: event, StepID: stepID,
		LogicalAttemptID: attempt, EmittedAt: "2026-02-16T10:00:00.000Z",
	})
	require.NoError(t, err)
	return w
}
