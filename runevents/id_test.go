package runevents_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// IsID accepts exactly the eventIds of the events' schema.
func TestIsID(t *testing.T) {
	t.Parallel()
	write := runevents.Write{
		EventType: "Told", EmittedAt: "2026-02-16T10:00:00.000Z", RunID: "run",
		TenantID: "t", ProjectID: "p",
		EnvironmentID: "e", PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1,
		LogicalAttemptID: 1,
	}
	write.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
		RunID: "run", LogicalAttemptID: 1, EventType: "Told", PlanID: "plan", PlanVersion: "1",
	})
	good := uuid.NewString()
	ids := []string{"", "x", good, good + "0", good[1:], strings.ToUpper("a" + good[1:]),
		uuid.Nil.String(),
		uuid.NewSHA1(uuid.Nil, []byte("x")).String(), "{" + good[1:35] + "}"}
	for i := range good {
		for _, c := range "0459abcfgG-\x00é" {
			ids = append(ids, good[:i]+string(c)+good[i+1:])
		}
	}
	for _, id := range ids {
		write.EventID = id
		require.Equal(t, write.Validate() == nil, runevents.IsID(id), "%q", id)
	}
}
