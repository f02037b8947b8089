package server_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The warning of NATS that a stream's index is behind, as after a kill, says that NATS rebuilds it.
func TestRestart_StreamIndexBehind(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	c := newWorld(t, logged(log))
	c.putTown("t")
	c.Stop()
	require.NotContains(t, log.String(), "rebuilds")
	found, err := filepath.Glob(filepath.Join(dataOf(c), "jetstream", "*", "streams",
		layout.LogStream("main"), "msgs", "index.db"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], nil, 0o600))
	c.start()
	require.Len(t, c.list(), 1)
	require.Regexp(t, `Filestore \[`+layout.LogStream("main")+`\] Recovering stream state.* errored`+
		`.*: the index of the stream was behind, as after a kill, and NATS rebuilds it"`, log.String())
	require.Equal(t, 1, strings.Count(log.String(), "rebuilds"))
}

// dataOf is the data directory of a world.
func dataOf(w *world) string { return w.Config.Embedded.Data }

// indexFile is the file of the index of a server with a data directory.
func indexFile(data string) string { return filepath.Join(data, "index", "main", "rows") }

// After a restart the towns, the keys and the runs are the same as before, also if the index was lost
// meanwhile: it is made again from the log. If the alerts were lost, an alert says so. One data directory has one
// server.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	var bodies [][]byte
	var first []outcome
	for i := range 20 {
		bodies = append(bodies, c.talk(c.putTown(fmt.Sprintf("town %d", i))))
		first = append(first, c.send(bodies[i]))
	}
	_, err := server.Start(t.Context(), c.Config)
	require.ErrorIs(t, err, embedded.ErrDataInUse)
	require.ErrorContains(t, err, dataOf(c))
	events, before := c.events(first[7].runID), c.list()
	require.NoError(t, c.streams().DeleteStream(t.Context(), layout.AlertStream("main")))
	for _, lose := range []bool{false, true} {
		c.Stop()
		if lose {
			require.NoError(t, os.Remove(indexFile(dataOf(c))))
		}
		c.start()
		require.Equal(t, before, c.list())
		for i, body := range bodies {
			requireDuplicateOf(t, first[i], c.send(body))
		}
		require.Equal(t, events, c.events(first[7].runID))
		c.awaitAlert(runevents.AlertsLost)
	}
}

// A key is known as long as the log keeps its record, and while its town is at the epoch at which
// it was accepted. After that a handoff is judged again, and is stale.
func TestKeys_ForgottenWithTheHistory(t *testing.T) {
	t.Parallel()
	const history = 20
	c := newWorld(t, func(config *server.Config) { config.Engine.HistoryPerTown = history })
	done := c.talk(c.putTown("t"))
	executed := c.executes(done)
	failing := c.bridge(c.town("t"))
	first := c.send(failing)
	require.Equal(t, handoff.Failed, first.result.Status)
	at := c.town("t")
	put := func(times int) {
		for range times {
			c.put(at.Snapshot, at.SnapshotHash)
		}
	}
	put(history - 5) // what is left is for a command in hand and the end of a pause
	requireDuplicateOf(t, executed, c.send(done))
	requireDuplicateOf(t, first, c.send(failing))
	c.refuses("town.put", putRequest(at.Snapshot, at.SnapshotHash), "HISTORY_FULL")
	later := snapshot("t")
	later.Day = at.DecisionEpoch + 1
	at = c.put(later, at.SnapshotHash)
	put(history - 1)
	key := members{"idempotencyKey": executed.result.IdempotencyKey}
	c.refuses("result.get", key, "UNKNOWN_RESULT")
	key["townId"] = "t"
	c.refuses("result.get", key, "UNKNOWN_RESULT")
	require.Equal(t, handoff.ReasonStaleEpoch, c.send(done).result.ReasonCode)
	require.Equal(t, handoff.ReasonStaleEpoch, c.send(failing).result.ReasonCode)
}

// resultOfKey returns the result id of a key; townID may be "".
func (c *client) resultOfKey(key, townID string) string {
	c.t.Helper()
	request := members{"idempotencyKey": key}
	if townID != "" {
		request["townId"] = townID
	}
	return call[struct{ Result struct{ ResultID string } }](c, "result.get", request).Result.ResultID
}

// A key belongs to its town. An agent of one town that knows which proposal another town's agent
// will make, and uses its key in a handoff that fails, takes nothing from the other: it executes.
func TestKeys_OfAnotherTown(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	mine, other := c.putTown("mine"), c.putTown("other")
	honest := parsed(t, propose(other, handoff.TalkToTownsfolk, "casual"))
	squat := propose(mine, handoff.AdvanceProject, "bridge")
	squat.ProposalID = honest.ProposalID
	burnt := c.send(marshalled(t, squat))
	require.Equal(t, handoff.Failed, burnt.result.Status)
	c.refuses("result.get", members{"idempotencyKey": honest.IdempotencyKey, "townId": "other"},
		"UNKNOWN_RESULT")
	executed := c.executes(c.talk(other))
	for townID, want := range map[string]outcome{"mine": burnt, "other": executed, "": executed} {
		require.Equal(t, want.result.ResultID, c.resultOfKey(honest.IdempotencyKey, townID), townID)
	}
}

// A client that signs in as early as it can has all its subscriptions: live messages cross from the
// world's account into the clients' before anybody is let in.
func TestRestart_ClientsThatWait(t *testing.T) {
	t.Parallel()
	address := natstest.FreeAddress(t)
	c := newWorld(t, func(config *server.Config) { config.Embedded.Listen = address })
	large := snapshot("large") // so that there is something to recover before they are let in
	random := make([]byte, 250_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	large.SideQuests[0].Title = hex.EncodeToString(random)
	for at, n := c.put(large, ""), 0; n < 8; n++ {
		c.put(large, at.SnapshotHash)
	}
	c.Stop()
	var early []*nats.Subscription
	var clients []*nats.Conn
	for range 24 {
		nc := connected(t, "nats://"+address, nats.RetryOnFailedConnect(true),
			nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0))
		sub, err := nc.SubscribeSync(wire.EventsSubject("main", "*"))
		require.NoError(t, err)
		clients, early = append(clients, nc), append(early, sub)
	}
	c.start()
	at := c.putTown("t")
	for i, nc := range clients { // the server has their subscriptions
		require.Eventually(t, nc.IsConnected, time.Minute, time.Millisecond, "client %d", i)
		require.NoError(t, nc.FlushTimeout(time.Minute), "client %d", i)
	}
	c.send(c.talk(at))
	for i, sub := range early {
		for commit := (messages.Commit{}); commit.Cause != "handoff"; {
			msg, err := sub.NextMsg(time.Minute)
			require.NoError(t, err, "subscriber %d", i)
			commit = commitOf(t, string(msg.Data))
		}
	}
}
