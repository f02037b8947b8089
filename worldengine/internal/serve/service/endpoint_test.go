package service

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// newWorld returns an open world without an engine, of a service without endpoints and listeners.
func newWorld(config Config) *ServedWorld {
	config.Logger = slog.New(slog.DiscardHandler)
	s := &Service{config: config.withDefaults(), addressees: map[string]*addressee{}}
	s.makeBounds()
	return openAnother(s, "main")
}

func openAnother(s *Service, name string) *ServedWorld {
	w := s.newWorld(WorldConfig{World: name})
	if err := s.add(w.addressee); err != nil {
		panic(err)
	}
	return w
}

// onlyReads returns a world without an engine that answers verbs of the test.
func onlyReads(t *testing.T, nc *nats.Conn, verbs map[string]handler) *ServedWorld {
	t.Helper()
	w := newWorld(Config{ReadWorkers: 1, MaxWaitingReads: 2})
	in := &Listener{Requests: nc, Replies: nc}
	var subs []*nats.Subscription
	for verb, do := range verbs {
		e := w.service.directEndpoint(wire.TownGet, do)
		w.service.endpoints = append(w.service.endpoints, e)
		sub, err := nc.Subscribe(verb, func(msg *nats.Msg) {
			w.admit(e, &incoming{addressee: w.addressee, listener: in, inbox: msg.Reply, data: msg.Data})
		})
		require.NoError(t, err)
		subs = append(subs, sub)
	}
	t.Cleanup(func() {
		for _, sub := range subs {
			require.NoError(t, sub.Unsubscribe())
		}
		require.NoError(t, nc.Flush())
		for _, e := range w.service.endpoints {
			e.lanes[0].close()
		}
		w.service.workers.Wait()
	})
	return w
}

// A flood of one read fills its own slots, half of them at most about one town, and no other verb
// notices.
func TestEndpoint_Flood(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	open := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(open) }) }
	w := onlyReads(t, nc, map[string]handler{
		"slow":  func(*incoming) (any, error) { <-open; return "slow", nil },
		"quick": func(*incoming) (any, error) { return "quick", nil },
	})
	t.Cleanup(release)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	const flood = 50
	for range flood {
		require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"a"}`)))
	}
	next := func() *nats.Msg {
		reply, err := replies.NextMsg(time.Minute)
		require.NoError(t, err)
		return reply
	}
	for range flood - 2 {
		refused := next().Header
		require.Equal(t, "429", refused.Get(wire.ErrorCodeHeader))
		require.Equal(t, "50", refused.Get(wire.RetryAfterHeader))
	}
	reply, err := nc.Request("quick", nil, time.Minute)
	require.NoError(t, err)
	require.Equal(t, `"quick"`, string(reply.Data))
	require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"b"}`)),
		"another town")
	release()
	for range 3 {
		require.Equal(t, `"slow"`, string(next().Data))
	}
	require.Equal(t, int64(flood-2), w.Overload().Refused["town"])
	require.Zero(t, w.Overload().Held)
}

// Each request has one answer and gives back its slot once, whatever panics while it is answered:
// its worker, the engine's answer, or a task of the engine, which answers then too.
func TestService_Panics(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	defect := func() (any, error) { panic("a defect, on purpose") }
	for name, row := range map[string]struct {
		answer func(*ServedWorld, *incoming)
		status string
	}{
		"anything": {func(w *ServedWorld, in *incoming) { w.answer(in, defect) }, "500"},
		"while another unwinds": {func(w *ServedWorld, in *incoming) {
			defer w.answer(in, defect)
			panic("the engine's")
		}, "500"},
		"the engine's queue is full": {func(w *ServedWorld, in *incoming) {
			w.answer(in, func() (any, error) { return nil, engine.ErrOverloaded })
		}, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := onlyReads(t, nc, nil)
			replies, err := nc.SubscribeSync(nc.NewInbox())
			require.NoError(t, err)
			only := newLane()
			e := &endpoint{slotKey: townMember, slots: w.service.slots(2, 4), lanes: []*lane{only}}
			w.admit(e, &incoming{
				addressee: w.addressee, listener: &Listener{Requests: nc, Replies: nc}, inbox: replies.Subject,
			})
			require.Equal(t, 1, w.Overload().Held)
			func() {
				defer func() { _ = recover() }() // as the engine's queue does
				row.answer(w, only.next())
			}()
			require.Zero(t, w.Overload().Held)
			require.Zero(t, w.Overload().HeldBytes)
			require.NoError(t, nc.Flush())
			reply, err := replies.NextMsg(time.Minute)
			require.NoError(t, err)
			require.Equal(t, row.status, reply.Header.Get(wire.ErrorCodeHeader))
			pending, _, err := replies.Pending()
			require.NoError(t, err)
			require.Zero(t, pending)
		})
	}
	t.Run("worker", func(t *testing.T) {
		t.Parallel()
		nc := natstest.Connect(t)
		w := onlyReads(t, nc, map[string]handler{
			"defect": func(*incoming) (any, error) { panic("a defect, on purpose") },
		})
		for range 20 {
			reply, err := nc.Request("defect", []byte(`{"townId":"a"}`), time.Minute)
			require.NoError(t, err)
			require.Equal(t, "500", reply.Header.Get(wire.ErrorCodeHeader))
		}
		require.Zero(t, w.Overload().Held)
		require.Zero(t, w.Overload().HeldBytes)
	})
}

// The requests of one town are submitted in the order of their arrival, on whatever lane the town is.
func TestEndpoint_Order(t *testing.T) {
	t.Parallel()
	const towns, each = 10, 200
	w := newWorld(Config{PerTown: each, Total: 4 * towns * each, MaxHeld: 1 << 30})
	var mu sync.Mutex
	submitted := map[string][]int{}
	e := w.service.queuedEndpoint(wire.TownPut, func(in *incoming) (any, error) {
		var r struct{ Number int }
		err := json.Unmarshal(in.data, &r)
		mu.Lock()
		defer mu.Unlock()
		submitted[in.slotOwner.key] = append(submitted[in.slotOwner.key], r.Number)
		return nil, err
	}, maxRequest, 1)
	for i := range towns * each {
		w.admit(e, &incoming{addressee: w.addressee, data: fmt.Appendf(nil, `{"townId":"%d","number":%d}`, i%towns, i)})
	}
	for _, lane := range e.lanes {
		lane.close()
	}
	w.service.workers.Wait()
	require.Len(t, submitted, towns)
	for town, numbers := range submitted {
		require.Len(t, numbers, each, town)
		require.True(t, slices.IsSorted(numbers), "%v", numbers)
	}
}

// A refused signal keeps the members of its request that can be read.
func TestParsePartial(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]messages.Signal{
		`{"townId":"t","runId":7,"actorId":"ada"}`: {TownID: "t", ActorID: "ada"},
		`{"townId":"t","runId":"r","actorId":"ada`: {TownID: "t", RunID: "r"},
		`{"townId":"t"} {`:                         {TownID: "t"},
		`town`:                                     {},
	} {
		var got messages.Signal
		parsePartial([]byte(data), &got)
		require.Equal(t, want, got, data)
	}
}
