package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A world that sleeps for longer than its receipts live wakes up.
func TestSleepsLongerThanTheRetention(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	with := func(c *server.Config) { c.Data, c.Engine.DedupeRetention = data, time.Second }
	srv, err := server.Start(t.Context(), configure(with))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual"))
	o := c.send(body)
	require.Equal(t, handoff.Executed, o.result.Status)
	require.Eventually(t, func() bool { return c.send(body).result.Status == handoff.Stale },
		30*time.Second, 50*time.Millisecond, "the receipt has expired")
	stop(t, srv)

	c = connect(t, start(t, with))
	require.Equal(t, handoff.Executed,
		c.send(marshalled(t, propose(c.town("t"), handoff.TalkToTownsfolk,
			"casual"))).result.Status)
	require.NotEmpty(t, c.events(o.runID))
}

// Reading leaves nothing behind: a list or a scan is a consumer for as long as it lasts.
func TestReadingLeavesNoConsumers(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	o := c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.TalkToTownsfolk, "casual")))
	for range 20 {
		require.Len(t, list(c), 1)
		require.Len(t, c.listRuns(map[string]any{"limit": 5}), 1)
		require.NotEmpty(t, c.events(o.runID))
	}
	js := c.streams()
	for _, name := range []string{wire.LogStream("main"), wire.EventStream("main")} {
		s, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		info, err := s.Info(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, info.State.Consumers, 3,
			"the two followers of the log, and the reader of signals")
	}
}

// Derived streams that are deleted under a running server come back, and no key is free meanwhile.
func TestDerivedStreamsAreDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	failing := marshalled(t, propose(at, handoff.AdvanceProject, "bridge"))
	first := c.send(failing)
	require.Equal(t, handoff.Failed, first.result.Status)
	before := c.events(first.runID)
	js := c.streams()
	require.NoError(t, js.DeleteStream(t.Context(), wire.ReceiptStream("main")))
	require.NoError(t, js.DeleteStream(t.Context(), wire.EventStream("main")))
	require.Eventually(t, func() bool {
		reply := c.request("handoff", failing)
		if reply.Header.Get("Nats-Service-Error-Code") == "503" {
			return false
		}
		result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, handoff.Duplicate, result.Status, "its key was consumed")
		require.Equal(t, first.result.ResultID, *result.Evaluation.DuplicateCheck.DuplicateOf)
		return true
	}, 20*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		reply := c.request("run.events", mustJSON(t, map[string]any{"runId": first.runID}))
		return reply.Header.Get("Nats-Service-Error-Code") == ""
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, before, c.events(first.runID))
}
