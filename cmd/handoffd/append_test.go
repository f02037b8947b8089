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

// With --validate-transitions the end of a run that has not started is refused; without, it is
// stored.
func TestValidateTransitions(t *testing.T) {
	t.Parallel()
	identity := runevents.Identity{
		RunID: "run-1", TenantID: "default", ProjectID: "main", EnvironmentID: "local",
		PlanID: "plan", PlanVersion: "1",
	}
	w, err := runevents.NewWrite(identity, runevents.Event{
		EventID: uuid.NewString(), EventType: runevents.RunCompleted,
		LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.123Z",
	})
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{"townId": "t", "events": []runevents.Write{w}})
	require.NoError(t, err)
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
