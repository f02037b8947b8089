package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// A server that is killed at any point of a retry has begun it or not. Where it has, the next
// server ends it; where it has not, the operator's next word does. Either way the command is
// applied once.
func TestKillWhileRetrying(t *testing.T) {
	t.Parallel()
	h := newHammer(t, 1)
	body := h.towns[0].next(t)
	failed, key := unreachable(t, h, body)
	for _, point := range failpoint.Points() {
		if point == failpoint.Committed {
			continue // of what the engine applies itself
		}
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			require.NoError(t, os.CopyFS(data, os.DirFS(failed)))
			killWhileRetrying(t, point, data, key, body)
		})
	}
}

// killWhileRetrying has the handoff of a key retried in a data directory where it has failed.
func killWhileRetrying(t *testing.T, point failpoint.Point, data, key string, body []byte) {
	g := &game{changes: map[string]int{}, asked: map[string]int{}}
	p := launch(t, []string{killAt + "=" + string(point)}, served(data)...)
	nc := p.connect()
	play(t, nc, g)
	runID := runOfKey(t, nc, key)
	requireFailed(t, nc, runID)
	retry := fmt.Appendf(nil, `{"runId":%q}`, runID)
	require.NoError(t, nc.PublishRequest(wire.Subject("main", "run.retry"), nc.NewInbox(), retry))
	select {
	case <-p.ended:
	case <-time.After(2 * time.Minute):
		t.Fatalf("the point is not reached: %s", p.stderr)
	}

	nc = launch(t, nil, served(data)...).connect()
	play(t, nc, g)
	requireFailed(t, nc, runID)
	reply, err := nc.Request(wire.Subject("main", "run.retry"), retry, time.Minute)
	require.NoError(t, err)
	if point == failpoint.Judged || point == failpoint.Indexed {
		require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
	} else {
		require.Contains(t, string(reply.Data), "RUN_RETRIED")
	}
	for until := time.Now().Add(time.Minute); runOfKey(t, nc, key) == runID; {
		require.True(t, time.Now().Before(until), "the key has no other run")
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	again := insist(t, func() *nats.Conn { return nc }, body)
	require.Equal(t, handoff.Duplicate, again.Status)
	requireOnce(t, nc, g, body, again, "SignalAccepted 1")
	requireSound(t, nc)
}

// served are the flags of a server of a data directory.
func served(data string, more ...string) []string {
	args := append([]string{"--listen", "127.0.0.1:0", "--data", data, "--sync", "interval"},
		quickly...)
	return append(args, more...)
}

// unreachable makes a data directory with a handoff that failed because no plugin was there, and
// returns its key. A busy machine that takes longer than an attempt, or than the time of a request,
// fails it otherwise.
func unreachable(t *testing.T, h *hammer, body []byte) (data, key string) {
	t.Helper()
	natstest.Patiently(t, 3*time.Second, func(deadline time.Duration) string {
		data = t.TempDir()
		p := launch(t, nil, served(data, "--plugin-attempts", "1", "--plugin-deadline",
			deadline.String(), "--plugin-resend", deadline.String(), "--plugin-absent", "fail")...)
		nc := p.connect()
		h.create(nc)
		answer, err := nc.Request(wire.Subject("main", "handoff"), body, deadline+time.Minute)
		require.NoError(t, err)
		failed, err := handoff.ParseResult(answer.Data, schemas.Limits{})
		require.NoError(t, err, "%s", answer.Data)
		key = failed.IdempotencyKey
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		<-p.ended
		if failed.ReasonCode != apply.ReasonPluginUnavailable {
			return "it ended with " + string(failed.ReasonCode)
		}
		return ""
	})
	return data, key
}

// runOfKey returns the run whose result a key has, as soon as the receipts are there.
func runOfKey(t *testing.T, nc *nats.Conn, key string) string {
	t.Helper()
	var got struct{ RunID string }
	askWhenDerived(t, nc, "result.get", fmt.Sprintf(`{"idempotencyKey":%q}`, key), &got)
	require.NotEmpty(t, got.RunID)
	return got.RunID
}

// requireFailed waits until the events of a run that failed are there.
func requireFailed(t *testing.T, nc *nats.Conn, runID string) {
	t.Helper()
	var run struct{ Status string }
	askWhenDerived(t, nc, "run.get", fmt.Sprintf(`{"runId":%q}`, runID), &run)
	require.Equal(t, "FAILED", run.Status)
}

// askWhenDerived asks about what is derived from the log until the server has derived it.
func askWhenDerived(t *testing.T, nc *nats.Conn, verb, request string, into any) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		reply, err := nc.Request(wire.Subject("main", wire.Verb(verb)), []byte(request),
			time.Minute)
		require.NoError(t, err)
		if reply.Header.Get(wire.ErrorCodeHeader) == "" {
			require.NoError(t, json.Unmarshal(reply.Data, into))
			return
		}
		require.Equal(t, "503", reply.Header.Get(wire.ErrorCodeHeader), "%s", reply.Data)
		require.True(t, time.Now().Before(until), "%s: %s", verb, reply.Data)
	}
}
