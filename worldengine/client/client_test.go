package client_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 16) }

// world is a server of a test, with clients.
type world struct {
	*servertest.World
	t *testing.T
}

func serve(t *testing.T, change ...servertest.Change) *world {
	t.Helper()
	return &world{servertest.Start(t, change...), t}
}

// join returns a client of a world on the server.
func (w *world) join(name string) *client.Client {
	w.t.Helper()
	c, err := client.Connect(w.URL(), client.Options{
		World: name, NATS: []nats.Option{nats.ReconnectWait(20 * time.Millisecond)},
	})
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// A first request beyond the size that the account allows is refused: sent, it would end the
// connection.
func TestConnect_KnowsItsLimit(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	_, err := c.Request(t.Context(), wire.TownGet, make([]byte, 2<<20))
	require.True(t, client.IsCode(err, "PAYLOAD_TOO_LARGE"), "%v", err)
}

// A node of NATS that vanishes, and closes no connection, is left before a call is over.
func TestConnect_NodeVanishes(t *testing.T) {
	t.Parallel()
	w := serve(t)
	usual := w.join("")
	found(t, usual, "t")
	require.Less(t, usual.Conn.Opts.PingInterval*time.Duration(usual.Conn.Opts.MaxPingsOut+1), 14*time.Second,
		"before the last repetition of a call")
	at := strings.TrimPrefix(w.URL(), "nats://")
	nodes := map[string]*natstest.Proxy{}
	for range 2 {
		node := natstest.NewProxy(t, at)
		nodes[node.Address()] = node
	}
	c, err := client.Connect(strings.Join(slices.Collect(maps.Keys(nodes)), ","), client.Options{
		NATS: []nats.Option{nats.PingInterval(usual.Conn.Opts.PingInterval / 20)}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	h := talk(t, c, "t")
	nodes[c.Conn.ConnectedAddr()].Cut(true)
	read := make(chan error)
	go func() {
		_, err := c.Town(t.Context(), "t")
		read <- err
	}()
	outcome, err := c.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, outcome.Result.Status)
	require.NoError(t, <-read)
}

// found creates a town.
func found(t *testing.T, c *client.Client, townID string) {
	t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = townID })
	_, err := c.PutTown(t.Context(), state.Snapshot, client.Put{})
	require.NoError(t, err)
}

// talk returns a handoff for the state that a town has now.
func talk(t *testing.T, c *client.Client, townID string) *handoff.Handoff {
	t.Helper()
	at, err := c.Town(t.Context(), townID)
	require.NoError(t, err)
	return towntest.Propose(t, town.NewState(at.Snapshot), handoff.TalkToTownsfolk, "casual")
}

// An agent tries a handoff, sends it, and reads its result, its run and its events.
func TestClient_Handoff(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	found(t, c, "t")
	h := talk(t, c, "t")
	would, err := c.DryRun(t.Context(), h)
	require.NoError(t, err)
	require.True(t, would.DryRun)
	got, err := c.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.Executed, got.Status())
	require.Equal(t, would.JSON, got.JSON)
	require.Nil(t, got.Duplicate)

	stored, err := c.Result(t.Context(), h.IdempotencyKey, "t")
	require.NoError(t, err)
	require.Equal(t, got, stored)
	run, err := c.Run(t.Context(), got.RunID)
	require.NoError(t, err)
	require.True(t, run.Status.Terminal())
	var last int64
	for event, err := range c.RunEvents(t.Context(), got.RunID, 3) {
		require.NoError(t, err)
		last = event.RunSeq
	}
	require.Equal(t, run.LastEventSeq, last)

	again, err := c.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, handoff.Duplicate, again.Status(),
		"an answer that was not lost is not replaced")

	one := client.New(c.Conn, "")
	one.Revision = handoff.Revision1
	form, err := one.Result(t.Context(), h.IdempotencyKey, "t")
	require.NoError(t, err)
	require.Equal(t, "mayor-1", form.Result1.ActorID)
	again, err = one.Send(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, form.Result1.ExecutionID, *again.Result1.Evaluation.DuplicateCheck.DuplicateOf)
}

func TestMemory(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	found(t, c, "t")
	got, err := c.Send(t.Context(), talk(t, c, "t"))
	require.NoError(t, err)
	town := "t"
	for _, scope := range []messages.MemoryScope{{}, {TownID: &town, HistoryLimit: 1}} {
		m, err := c.Memory(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, got.RunID, m.RecentChronicle[0].RunID)
		require.Equal(t, scope.TownID, m.Scope.TownID)
		require.Equal(t, cmp.Or(scope.HistoryLimit, 4), m.Scope.HistoryLimit)
	}
}

// The events of a handoff's run have the trace of the ctx with which it was sent.
func TestSend_Trace(t *testing.T) {
	t.Parallel()
	c := serve(t, func(config *server.Config) { config.Engine.Outbox.Enabled = true }).join("")
	found(t, c, "t")
	type key struct{}
	c.Trace = func(ctx context.Context) trace.Context {
		of, _ := ctx.Value(key{}).(trace.Context)
		return of
	}
	events, err := c.Conn.SubscribeSync(wire.EventSubject(wire.DefaultWorld, "*", "*"))
	require.NoError(t, err)
	for _, want := range []trace.Context{
		trace.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1"), {},
	} {
		got, err := c.Send(context.WithValue(t.Context(), key{}, want), talk(t, c, "t"))
		require.NoError(t, err)
		require.Equal(t, handoff.Executed, got.Status())
		for event := ""; event != string(runevents.RunCompleted); {
			msg, err := events.NextMsg(30 * time.Second)
			require.NoError(t, err)
			require.Equal(t, want, trace.Extract(msg.Header))
			event = msg.Header.Get(wire.EventTypeHeader)
		}
	}
}

// Towns are listed, replaced, patched and removed, each by the state that the caller has seen.
func TestClient_Towns(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	for _, id := range []string{"b", "a", "c d"} {
		found(t, c, id)
	}
	listed := func(query messages.TownList) (ids []string) {
		t.Helper()
		for summary, err := range c.Towns(t.Context(), query) {
			require.NoError(t, err)
			ids = append(ids, summary.TownID)
		}
		return ids
	}
	require.Equal(t, []string{"a", "b", "c d"}, listed(messages.TownList{}))
	require.Equal(t, []string{"b", "c d"}, listed(messages.TownList{After: "a", Limit: 1}))

	at, err := c.Town(t.Context(), "a")
	require.NoError(t, err)
	at.Snapshot.Day++
	_, err = c.PutTown(t.Context(), at.Snapshot, client.Put{})
	require.True(t, client.IsCode(err, wire.CodeTownExists), "%v", err)
	after, err := c.PutTown(t.Context(), at.Snapshot,
		client.Put{Expected: at.SnapshotHash, Apply: "plugin"})
	require.NoError(t, err)
	require.Equal(t, "plugin", after.Apply)
	before, err := c.TownAt(t.Context(), "a", at.Revision)
	require.NoError(t, err)
	require.Equal(t, at.SnapshotHash, before.SnapshotHash)

	patch := func(merge, expected string, types ...handoff.ProposalType) (*client.Town, error) {
		return c.PatchTown(t.Context(), "a", jsontext.Value(merge),
			client.Patch{Expected: expected, Approval: types})
	}
	next, err := patch(`{"latestNetherEvent": "A ghast was seen."}`, after.SnapshotHash,
		handoff.PlanSalvage)
	require.NoError(t, err)
	require.Equal(t, "A ghast was seen.", *next.Snapshot.LatestNetherEvent)
	require.Equal(t, []handoff.ProposalType{handoff.PlanSalvage}, next.Approval)
	_, err = patch(`{"day": 99}`, at.SnapshotHash)
	require.True(t, client.IsCode(err, wire.CodeSnapshotConflict), "%v", err)
	// The server refuses them, and not the client.
	for _, refused := range []string{`{"day": 1, "day": 2}`, `{"day": "x"}`} {
		_, err = patch(refused, next.SnapshotHash)
		reply, ok := errors.AsType[*client.ReplyError](err)
		require.True(t, ok, "%s: %v", refused, err)
		require.Equal(t, 400, reply.Status)
		require.NotEmpty(t, reply.Details)
	}

	last, err := c.RemoveTown(t.Context(), "c d")
	require.NoError(t, err)
	require.Equal(t, "c d", last.TownID)
	_, err = c.Town(t.Context(), "c d")
	require.True(t, client.IsCode(err, wire.CodeUnknownTown), "%v", err)
}

// The events of one run end with it.
func TestEvents_Run(t *testing.T) {
	t.Parallel()
	c := serve(t).join("")
	found(t, c, "t")
	got, err := c.Send(t.Context(), talk(t, c, "t"))
	require.NoError(t, err)
	for after := int64(0); after <= 10; after += 5 {
		next := after + 1
		for event, err := range c.Events(t.Context(),
			client.Follow{RunID: got.RunID, AfterSeq: after}) {
			require.NoError(t, err)
			require.Equal(t, next, event.RunSeq)
			next++
		}
		require.EqualValues(t, 11, next)
	}
	for _, err := range c.Events(t.Context(),
		client.Follow{RunID: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"}) {
		require.True(t, client.IsCode(err, wire.CodeUnknownRun), "%v", err)
	}
}
