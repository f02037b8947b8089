package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/wire"
)

// A server that is killed at any point of a retry has begun it or not. Where it has, the next
// server ends it; where it has not, the operator's next word does. Either way the command is
// applied once.
func TestKillWhileRetrying(t *testing.T) {
	t.Parallel()
	for _, point := range failpoint.Points() {
		if point == failpoint.Committed {
			continue // of what the engine applies itself
		}
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			data, g := t.TempDir(), &game{changes: map[string]int{}, asked: map[string]int{}}
			serve := func(env []string, more ...string) *program {
				args := append([]string{"--listen", "127.0.0.1:0", "--data", data, "--sync",
					"interval"}, quickly...)
				return launch(t, env, append(args, more...)...)
			}
			h := newHammer(t, 1)
			body := h.towns[0].next(t)
			p := serve(nil, "--plugin-attempts", "1", "--plugin-deadline", "3s",
				"--plugin-absent", "fail")
			nc := p.connect()
			h.create(nc)
			answer, err := nc.Request(wire.Subject("main", "handoff"), body, 60*time.Second)
			require.NoError(t, err)
			failed, err := handoff.ParseResult(answer.Data, schemas.Limits{})
			require.NoError(t, err)
			require.Equal(t, "PLUGIN_UNAVAILABLE", string(failed.ReasonCode))
			runID := runOfKey(t, nc, failed.IdempotencyKey)
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			<-p.ended

			p = serve([]string{killAt + "=" + string(point)})
			nc = p.connect()
			play(t, nc, g)
			retry := fmt.Appendf(nil, `{"runId":%q}`, runID)
			require.NoError(t, nc.PublishRequest(wire.Subject("main", "run.retry"),
				nc.NewInbox(), retry))
			select {
			case <-p.ended:
			case <-time.After(30 * time.Second):
				t.Fatalf("the point is not reached: %s", p.stderr)
			}

			p = serve(nil)
			nc = p.connect()
			play(t, nc, g)
			reply, err := nc.Request(wire.Subject("main", "run.retry"), retry, 20*time.Second)
			require.NoError(t, err)
			if point == failpoint.Judged || point == failpoint.Indexed {
				require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
			} else {
				require.Contains(t, string(reply.Data), "RUN_RETRIED")
			}
			require.Eventually(t, func() bool {
				return runOfKey(t, nc, failed.IdempotencyKey) != runID
			},
				30*time.Second, 10*time.Millisecond)
			again := insist(t, func() *nats.Conn { return nc }, body)
			require.Equal(t, handoff.Duplicate, again.Status)
			requireOnce(t, nc, g, body, again, "SignalAccepted 1")
			requireSound(t, nc)
		})
	}
}

// runOfKey returns the run whose result a key has.
func runOfKey(t *testing.T, nc *nats.Conn, key string) string {
	t.Helper()
	reply, err := nc.Request(wire.Subject("main", "result.get"),
		fmt.Appendf(nil, `{"idempotencyKey":%q}`, key), 10*time.Second)
	require.NoError(t, err)
	var got struct{ RunID string }
	require.NoError(t, json.Unmarshal(reply.Data, &got))
	require.NotEmpty(t, got.RunID, "%s", reply.Data)
	return got.RunID
}
