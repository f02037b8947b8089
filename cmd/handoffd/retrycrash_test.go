package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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
	points := pluginPoints()
	h := newHammer(t, len(points))
	data, keys := unreachable(t, h)
	m, g := newMortal(t, served(data)...), newGame()
	playAlone(t, m.nc, g)
	for i, point := range points {
		killWhileRetrying(t, m, g, point, keys[i], h.towns[i].open)
	}
}

// killWhileRetrying has the failed handoff of a key retried by a server that is killed at a point
// of that. The game plays on m.nc before it, and again behind it.
func killWhileRetrying(
	t *testing.T, m *mortal, g *game, point failpoint.Point, key string, body []byte,
) {
	t.Helper()
	runID := runOfKey(t, m.nc, key)
	requireFailed(t, m.nc, runID)
	retry := fmt.Appendf(nil, `{"runId":%q}`, runID)
	m.dies(point, wire.RunRetry, retry)
	nc := m.nc
	playAlone(t, nc, g)
	requireFailed(t, nc, runID)
	reply, err := nc.Request(wire.Subject("main", wire.RunRetry), retry, time.Minute)
	require.NoError(t, err)
	if point == failpoint.Judged {
		require.Empty(t, reply.Header.Get(wire.ErrorCodeHeader), "%s: %s", point, reply.Data)
	} else {
		require.Contains(t, string(reply.Data), "RUN_RETRIED", point)
	}
	for until := time.Now().Add(time.Minute); runOfKey(t, nc, key) == runID; {
		require.True(t, time.Now().Before(until), "%s: the key has no other run", point)
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	again := insist(t, func() *nats.Conn { return nc }, body)
	require.Equal(t, handoff.Duplicate, again.Status, point)
	requireOnce(t, nc, g, body, again, "SignalAccepted 1")
	requireSound(t, nc)
}

// served are the flags of a server of a data directory.
func served(data string, more ...string) []string {
	args := append([]string{"--listen", "127.0.0.1:0", "--data", data, "--sync", "interval"},
		quickly...)
	return append(args, more...)
}

// unreachable makes a data directory with a handoff for each town that failed because no plugin
// was there, and returns their keys. A busy machine that takes longer than an attempt, or than the
// time of a request, fails them otherwise.
func unreachable(t *testing.T, h *hammer) (data string, keys []string) {
	t.Helper()
	for _, d := range h.towns {
		d.open = d.next(t)
	}
	natstest.Patiently(t, time.Second, func(deadline time.Duration) (wrong string) {
		data, keys = t.TempDir(), make([]string, len(h.towns))
		p := launch(t, nil, served(data, "--plugin-attempts", "1", "--plugin-deadline",
			deadline.String(), "--plugin-resend", deadline.String(), "--plugin-absent", "fail")...)
		nc := p.connect()
		h.create(nc)
		replies, sub := make(chan *nats.Msg, len(h.towns)), nc.NewInbox()
		_, err := nc.ChanSubscribe(sub+".*", replies)
		require.NoError(t, err)
		for i, d := range h.towns {
			require.NoError(t, nc.PublishRequest(wire.Subject("main", wire.Handoff),
				fmt.Sprint(sub, ".", i), d.open))
		}
		for range h.towns {
			var reply *nats.Msg
			select {
			case reply = <-replies:
			case <-time.After(deadline + time.Minute):
				require.Fail(t, "a handoff is not answered", "%s", p.stderr)
			}
			i, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, sub+"."))
			require.NoError(t, err)
			failed, err := handoff.ParseResult(reply.Data, schemas.Limits{})
			require.NoError(t, err, "%s", reply.Data)
			if keys[i] = failed.IdempotencyKey; failed.ReasonCode != apply.ReasonPluginUnavailable {
				wrong = "one ended with " + string(failed.ReasonCode)
			}
		}
		p.end(syscall.SIGTERM)
		return wrong
	})
	return data, keys
}

// runOfKey returns the run whose result a key has, as soon as the index has it.
func runOfKey(t *testing.T, nc *nats.Conn, key string) string {
	t.Helper()
	var got struct{ RunID string }
	askWhenIndexed(t, nc, "result.get", fmt.Sprintf(`{"idempotencyKey":%q}`, key), &got)
	require.NotEmpty(t, got.RunID)
	return got.RunID
}

// requireFailed checks that a run failed.
func requireFailed(t *testing.T, nc *nats.Conn, runID string) {
	t.Helper()
	var run struct{ Status string }
	askWhenIndexed(t, nc, "run.get", fmt.Sprintf(`{"runId":%q}`, runID), &run)
	require.Equal(t, "FAILED", run.Status)
}

// askWhenIndexed asks until the index is complete: before, the answer is 503.
func askWhenIndexed(t *testing.T, nc *nats.Conn, verb, request string, into any) {
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
