package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// appended returns a request of run.append with the one event of a run.
func appended(t testing.TB, runID string, kind runevents.EventType) []byte {
	t.Helper()
	identity := runevents.Identity{
		RunID: runID, TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	}
	w, err := runevents.NewWrite(identity, runevents.Event{
		EventID: uuid.NewString(), EventType: kind,
		LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.123Z",
	})
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"townId": "t", "events": []runevents.Write{w}})
	require.NoError(t, err)
	return body
}

// With --validate-transitions the end of a run that has not started is refused; without, it is
// stored.
func TestValidateTransitions(t *testing.T) {
	t.Parallel()
	body := appended(t, "run-1", runevents.RunCompleted)
	for _, c := range []struct {
		flags []string
		code  string
	}{{nil, ""}, {[]string{"--validate-transitions"}, "409"}} {
		p := launch(t, nil, append(c.flags, "--listen", "127.0.0.1:0", "--data", t.TempDir())...)
		reply, err := p.connect().Request(wire.Subject(wire.DefaultWorld, wire.RunAppend),
			body, 30*time.Second)
		require.NoError(t, err)
		require.Equal(t, c.code, reply.Header.Get(wire.ErrorCodeHeader), "%v: %s",
			c.flags, reply.Data)
	}
}
