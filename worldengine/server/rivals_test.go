package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/server"
)

// A key is the world's, not a town's: what one engine has accepted for one town, another does not
// accept for another town, however soon after.
func TestOneKeyOfTwoTowns(t *testing.T) {
	t.Parallel()
	srv := start(t)
	second := start(t, func(c *server.Config) { c.NATS = srv.URL() })
	c := connect(t, srv)
	for i := range 60 {
		mine := c.put(snapshot(fmt.Sprintf("mine %d", i)), "")
		other := c.put(snapshot(fmt.Sprintf("other %d", i)), "")
		first, err := handoff.Parse(wire(t, propose(mine, handoff.TalkToTownsfolk, "casual")), schemas.Limits{})
		require.NoError(t, err)
		reuse := propose(other, handoff.TalkToTownsfolk, "casual")
		reuse.ProposalID = first.ProposalID
		reused, err := handoff.Parse(wire(t, reuse), schemas.Limits{})
		require.NoError(t, err)

		answer, err := srv.Engine().Execute(t.Context(), first)
		require.NoError(t, err)
		require.Equal(t, handoff.Executed, answer.Result.Status)
		again, err := second.Engine().Execute(t.Context(), reused)
		require.NoError(t, err)
		require.Equal(t, handoff.ReasonKeyReused, again.Result.ReasonCode, "town %d", i)
		require.Equal(t, answer.Result.ResultID, *again.Result.Evaluation.DuplicateCheck.DuplicateOf)
		require.Equal(t, other.SnapshotHash, c.town(other.TownID).SnapshotHash)
	}
}

// A world that sleeps for longer than its receipts live wakes up.
func TestSleepsLongerThanTheRetention(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	with := func(c *server.Config) { c.Data, c.Engine.DedupeRetention = data, time.Second }
	srv, err := server.Start(t.Context(), configure(with))
	require.NoError(t, err)
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := wire(t, propose(at, handoff.TalkToTownsfolk, "casual"))
	o := c.send(body)
	require.Equal(t, handoff.Executed, o.result.Status)
	require.Eventually(t, func() bool { return c.send(body).result.Status == handoff.Stale },
		10*time.Second, 50*time.Millisecond, "the receipt has expired")
	stop(t, srv)

	c = connect(t, start(t, with))
	require.Equal(t, handoff.Executed,
		c.send(wire(t, propose(c.town("t"), handoff.TalkToTownsfolk, "casual"))).result.Status)
	require.NotEmpty(t, c.events(o.runID))
}

// Reading leaves nothing behind: a list or a scan is a consumer for as long as it lasts.
func TestReadingLeavesNoConsumers(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	o := c.send(wire(t, propose(c.put(snapshot("t"), ""), handoff.TalkToTownsfolk, "casual")))
	for range 20 {
		require.Len(t, list(c), 1)
		require.Len(t, c.listRuns(map[string]any{"limit": 5}), 1)
		require.NotEmpty(t, c.events(o.runID))
	}
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	for _, name := range []string{worldengine.LogStream("main"), worldengine.EventStream("main")} {
		s, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		info, err := s.Info(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, info.State.Consumers, 3, "the two followers of the log, and the reader of signals")
	}
}

// Derived streams that are deleted under a running server come back, and no key is free meanwhile.
func TestDerivedStreamsAreDeletedWhileRunning(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	at := c.put(snapshot("t"), "")
	failing := wire(t, propose(at, handoff.AdvanceProject, "bridge"))
	first := c.send(failing)
	require.Equal(t, handoff.Failed, first.result.Status)
	before := c.events(first.runID)
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), dedupe.StreamName("main")))
	require.NoError(t, js.DeleteStream(t.Context(), worldengine.EventStream("main")))
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
