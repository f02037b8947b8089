package runevents_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/schemas"
)

// allEvents are the events that move a run or a step, and some that are none.
var allEvents = slices.Concat(runevents.EventTypes(runevents.RunLevel),
	runevents.EventTypes(runevents.StepLevel), []runevents.EventType{"CostAttributed", "runStarted", ""})

var runStatuses = []runevents.RunStatus{
	"PENDING", "APPROVED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED",
}

// runTransitions has all valid ones; the others are invalid.
var runTransitions = map[runevents.RunStatus]map[runevents.EventType]runevents.RunStatus{
	"PENDING":  {"RunQueued": "PENDING", "RunApproved": "APPROVED", "RunStarted": "RUNNING"},
	"APPROVED": {"RunQueued": "APPROVED", "RunStarted": "RUNNING"},
	"RUNNING": {
		"RunPaused": "PAUSED", "RunCompleted": "COMPLETED",
		"RunFailed": "FAILED", "RunCancelled": "CANCELLED",
	},
	"PAUSED": {"RunResumed": "RUNNING", "RunCancelled": "CANCELLED"},
}

var stepStatuses = []runevents.StepStatus{"PENDING", "RUNNING", "SUCCESS", "FAILED", "SKIPPED"}

// stepTransitions has all valid ones; the others are invalid.
var stepTransitions = map[runevents.StepStatus]map[runevents.EventType]runevents.StepStatus{
	"PENDING": {"StepStarted": "RUNNING", "StepSkipped": "SKIPPED"},
	"RUNNING": {"StepCompleted": "SUCCESS", "StepFailed": "FAILED"},
}

// requireTransitions asserts that next allows exactly the transitions.
func requireTransitions[S ~string](
	t *testing.T, next func(S, runevents.EventType) (S, bool), statuses []S,
	transitions map[S]map[runevents.EventType]S,
) {
	t.Helper()
	for _, status := range append(statuses, "", "NONSENSE") {
		for _, event := range allEvents {
			want, valid := transitions[status][event]
			got, ok := next(status, event)
			require.Equal(t, valid, ok, "%s in %s", event, status)
			if valid {
				require.Equal(t, want, got, "%s in %s", event, status)
			}
		}
	}
}

func TestNextRunStatus(t *testing.T) {
	t.Parallel()
	requireTransitions(t, runevents.NextRunStatus, runStatuses, runTransitions)
}

func TestNextStepStatus(t *testing.T) {
	t.Parallel()
	requireTransitions(t, runevents.NextStepStatus, stepStatuses, stepTransitions)
}

// Every event type has a schema of its payload.
func TestEventTypes_HavePayloadSchemas(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, runevents.EventTypes(0))
	for _, event := range runevents.EventTypes(0) {
		_, err := schemas.Source(schemas.Name(event))
		require.NoError(t, err)
	}
}
