package server_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// The ordinary NATS tools discover the service and read its statistics.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	c.put(snapshot("t"), "")
	ask := func(subject string, v any) {
		reply, err := c.nc.Request(subject, nil, 30*time.Second)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(reply.Data, v))
	}
	var info struct {
		Name      string
		Metadata  map[string]string
		Endpoints []struct {
			Name    string
			Subject string
		}
	}
	ask("$SRV.INFO.worldengine", &info)
	require.Equal(t, "worldengine", info.Name)
	require.Equal(t, "main", info.Metadata["world"])
	subjects := map[string]bool{}
	for _, e := range info.Endpoints {
		subjects[e.Subject] = true
	}
	for _, verb := range []string{"handoff", "town.get", "town.list", "town.put", "result.get",
		"run.events"} {
		require.True(t, subjects[wire.Subject("main", verb)], verb)
	}
	var stats struct {
		Endpoints []struct {
			Name        string
			NumRequests int `json:"num_requests"`
			Data        messages.Stats
		}
	}
	c.send(marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "wall")))
	ask("$SRV.STATS.worldengine", &stats)
	counted := map[string]int{}
	for _, e := range stats.Endpoints {
		counted[e.Name] = e.NumRequests
	}
	require.Equal(t, 1, counted["town-put"])
	require.Equal(t, int64(1), stats.Endpoints[0].Data.Results[handoff.Executed])
}

// TestDiscovery_AverageTime: the average time of a verb lasts to the answer.
func TestDiscovery_AverageTime(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	const wait = 300 * time.Millisecond
	page := call[struct{ Cursor string }](c, "event.list", "event-list-reply.v1", map[string]any{})
	call[struct{}](c, "event.list", "event-list-reply.v1", map[string]any{
		"after": page.Cursor, "waitMs": wait.Milliseconds(),
	})
	reply, err := c.nc.Request("$SRV.STATS.worldengine", nil, 30*time.Second)
	require.NoError(t, err)
	var stats struct {
		Endpoints []struct {
			Name    string
			Average time.Duration `json:"average_processing_time"`
		}
	}
	require.NoError(t, json.Unmarshal(reply.Data, &stats))
	for _, e := range stats.Endpoints {
		if e.Name == "event-list" {
			require.GreaterOrEqual(t, e.Average, wait/2, "of two requests, one of which waited")
			return
		}
	}
	require.Fail(t, "event.list is not counted")
}

// Events are paged by runSeq, and every page says how far the run goes.
func TestRunEventsArePaged(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	o := c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall")))
	all := c.events(o.runID)
	var paged []runevents.Record
	for after := int64(0); ; {
		page := call[struct {
			Events       []runevents.Record
			LastEventSeq int64
		}](c, "run.events", "run-events-reply.v1",
			map[string]any{"runId": o.runID, "afterSeq": after, "limit": 3})
		require.Equal(t, int64(len(all)), page.LastEventSeq)
		if len(page.Events) == 0 {
			break
		}
		require.LessOrEqual(t, len(page.Events), 3)
		paged = append(paged, page.Events...)
		after = page.Events[len(page.Events)-1].RunSeq
	}
	require.Equal(t, all, paged)
}

// The bus has every event as a plain message, as the design says.
func TestBus(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, withBus))
	id := "Fort. № 2"
	at := c.put(snapshot(id), "")
	bus, err := c.nc.SubscribeSync("runevents.v2.main.>")
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	o := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	for _, want := range c.events(o.runID) {
		msg, err := bus.NextMsg(30 * time.Second)
		require.NoError(t, err)
		require.Equal(t, "runevents.v2.main.Fort%2E%20%E2%84%96%202."+o.runID, msg.Subject)
		require.Equal(t, string(want.EventType), msg.Header.Get("Event-Type"))
		require.Equal(t, want.EventID, msg.Header.Get("Nats-Msg-Id"))
		var got runevents.Record
		require.NoError(t, json.Unmarshal(msg.Data, &got))
		require.Equal(t, want, got)
		emitted, err := time.Parse(time.RFC3339, got.EmittedAt)
		require.NoError(t, err)
		persisted, err := time.Parse(time.RFC3339, got.PersistedAt)
		require.NoError(t, err)
		require.False(t, persisted.Before(emitted), "one machine, one clock")
	}
}

// When more is asked than fits, the rest is told at once to come back, and what was admitted gets
// its result. Handoffs that waited for their town say so.
func TestOverload(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(config *server.Config) {
		config.Engine.QueuePerTown, config.Engine.Workers = 4, 1
	}))
	at := c.put(snapshot("t"), "")
	const flood = 400
	inbox := nats.NewInbox()
	replies, err := c.nc.SubscribeSync(inbox)
	require.NoError(t, err)
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	for range flood {
		require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "handoff"), inbox, body))
	}
	statuses := map[handoff.Status]int{}
	busy, queued := 0, 0
	for range flood {
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err)
		if reply.Header.Get("Nats-Service-Error-Code") != "" {
			f := c.failureOf(reply)
			require.Equal(t, []any{429, "OVERLOADED"}, []any{f.Status, f.Code})
			pause, err := strconv.Atoi(f.RetryAfter)
			require.NoError(t, err)
			require.Positive(t, pause)
			busy++
			continue
		}
		var result handoff.Result
		require.NoError(t, json.Unmarshal(reply.Data, &result))
		statuses[result.Status]++
		if c.events(reply.Header.Get("Run-Id"))[0].EventType == runevents.RunQueued {
			queued++
		}
	}
	require.Equal(t, 1, statuses[handoff.Executed])
	require.Equal(t, flood-busy-1, statuses[handoff.Duplicate])
	require.Positive(t, busy)
	require.Positive(t, queued)
}

// Handoffs of one town that arrive together are judged in the order of their arrival: a chain of
// handoffs, each made from the state that the one before leads to, is executed as a whole.
func TestOrderOfArrival(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	try := 0
	require.Eventually(t, func() bool {
		try++
		return orderly(t, c, fmt.Sprint("t-", try))
	}, 2*time.Minute, 20*time.Millisecond)
}

// orderly sends a chain of handoffs for a new town at once, and reports whether all were executed.
// Only where the engine refuses one because it is behind, or has not heard from the log in time
// (503), those behind it may not be.
func orderly(t *testing.T, c *client, townID string) bool {
	t.Helper()
	const length = 100
	h := newChain(t, c, townID)
	var replies []*nats.Subscription
	for range length {
		inbox := c.nc.NewInbox()
		sub, err := c.nc.SubscribeSync(inbox)
		require.NoError(t, err)
		replies = append(replies, sub)
		require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "handoff"), inbox, h.next()))
	}
	behind := false
	for _, sub := range replies {
		reply, err := sub.NextMsg(time.Minute)
		require.NoError(t, err)
		if reply.Header.Get(wire.ErrorCodeHeader) == "503" {
			behind = true
		}
		if behind {
			continue
		}
		var result handoff.Result
		require.NoError(t, json.Unmarshal(reply.Data, &result))
		require.Equal(t, handoff.Executed, result.Status, "%s", reply.Data)
	}
	if !behind {
		require.Equal(t, h.at.SnapshotHash, c.town(townID).SnapshotHash)
	}
	return !behind
}

// A NATS that was joined goes away and comes back: what was answered before is remembered, and the
// world goes on.
func TestJoinedNATSRestarts(t *testing.T) {
	t.Parallel()
	external := startExternal(t)
	srv := start(t, func(c *server.Config) { c.NATS = external.url() })
	c := connect(t, srv)
	h := newChain(t, c, "t")
	first := h.next()
	require.Equal(t, handoff.Executed, c.send(first).result.Status)
	failing := marshalled(t, propose(h.at, handoff.AdvanceProject, "bridge"))
	require.Equal(t, handoff.Failed, c.send(failing).result.Status)
	external.restart()
	var answers sync.Map
	require.Eventually(t, func() bool {
		reply, err := c.nc.Request(wire.Subject("main", "handoff"), failing, 2*time.Second)
		if err != nil || reply.Header.Get("Nats-Service-Error-Code") != "" {
			return false
		}
		var result handoff.Result
		require.NoError(t, json.Unmarshal(reply.Data, &result))
		answers.Store(result.Status, true)
		return true
	}, 30*time.Second, 50*time.Millisecond)
	_, duplicate := answers.Load(handoff.Duplicate)
	require.True(t, duplicate, "a key that was consumed is free again")
	require.Equal(t, handoff.Executed, c.send(h.next()).result.Status)
}
