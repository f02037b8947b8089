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

	"worldengine/worldengine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// onlyReads returns a service without an engine that answers verbs of the test.
func onlyReads(
	t *testing.T, nc *nats.Conn, verbs map[string]func(*Service, *incoming) (any, error),
) *Service {
	t.Helper()
	s := &Service{
		config: Config{
			Readers: 1, Waiting: 2, Logger: slog.New(slog.DiscardHandler),
		}.withDefaults(),
		ctx: t.Context(),
	}
	s.held.bound = s.config.MaxHeld
	in := &Entrance{Requests: nc, Replies: nc}
	var subs []*nats.Subscription
	for verb, do := range verbs {
		e := s.readsBy(wire.TownGet, func(in *incoming) (any, error) { return do(s, in) })
		s.endpoints = append(s.endpoints, e)
		sub, err := nc.Subscribe(verb, func(msg *nats.Msg) {
			s.admit(e, &incoming{entrance: in, inbox: msg.Reply, data: msg.Data})
		})
		require.NoError(t, err)
		subs = append(subs, sub)
	}
	t.Cleanup(func() {
		for _, sub := range subs {
			require.NoError(t, sub.Unsubscribe())
		}
		require.NoError(t, nc.Flush())
		for _, e := range s.endpoints {
			close(e.lanes[0])
		}
		s.workers.Wait()
	})
	return s
}

// A flood of one read fills its own slots, half of them at most about one town, and no other verb
// notices.
func TestEndpoint_Flood(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	open := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(open) }) }
	s := onlyReads(t, nc, map[string]func(*Service, *incoming) (any, error){
		"slow":  func(*Service, *incoming) (any, error) { <-open; return "slow", nil },
		"quick": func(*Service, *incoming) (any, error) { return "quick", nil },
	})
	t.Cleanup(release)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	const flood = 50
	for range flood {
		require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"a"}`)))
	}
	next := func() *nats.Msg {
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err)
		return reply
	}
	for range flood - 2 {
		refused := next().Header
		require.Equal(t, "429", refused.Get(wire.ErrorCodeHeader))
		require.Equal(t, "50", refused.Get(wire.RetryAfterHeader))
	}
	reply, err := nc.Request("quick", nil, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, `"quick"`, string(reply.Data))
	require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"b"}`)),
		"another town")
	release()
	for range 3 {
		require.Equal(t, `"slow"`, string(next().Data))
	}
	require.Equal(t, int64(flood-2), s.Overload().Refused["town"])
	require.Zero(t, s.Overload().Held)
}

// Each request has one answer and gives back its slot once, whatever panics while it is answered:
// its worker, the engine's answer, or a task of the engine, which answers then too.
func TestService_Panics(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	defect := func() (any, error) { panic("a defect, on purpose") }
	for name, row := range map[string]struct {
		answer func(*Service, *incoming)
		status string
	}{
		"anything": {func(s *Service, in *incoming) { s.answer(in, defect) }, "500"},
		"while another unwinds": {func(s *Service, in *incoming) {
			defer s.answer(in, defect)
			panic("the engine's")
		}, "500"},
		"the engine's queue is full": {func(s *Service, in *incoming) {
			s.answer(in, func() (any, error) { return nil, worldengine.ErrOverloaded })
		}, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onlyReads(t, nc, nil)
			replies, err := nc.SubscribeSync(nc.NewInbox())
			require.NoError(t, err)
			lane := make(chan *incoming, 4)
			e := &endpoint{
				about: aboutTown, slots: newSlots(2, 4), lanes: []chan *incoming{lane},
			}
			s.admit(e, &incoming{
				entrance: &Entrance{Requests: nc, Replies: nc}, inbox: replies.Subject,
			})
			require.Equal(t, 1, s.Overload().Held)
			func() {
				defer func() { _ = recover() }() // as the engine's queue does
				row.answer(s, <-lane)
			}()
			require.Zero(t, s.Overload().Held)
			require.Zero(t, s.Overload().HeldBytes)
			require.NoError(t, nc.Flush())
			reply, err := replies.NextMsg(20 * time.Second)
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
		s := onlyReads(t, nc, map[string]func(*Service, *incoming) (any, error){
			"defect": func(*Service, *incoming) (any, error) { panic("a defect, on purpose") },
		})
		for range 20 {
			reply, err := nc.Request("defect", []byte(`{"townId":"a"}`), 20*time.Second)
			require.NoError(t, err)
			require.Equal(t, "500", reply.Header.Get(wire.ErrorCodeHeader))
		}
		require.Zero(t, s.Overload().Held)
		require.Zero(t, s.Overload().HeldBytes)
	})
}

// The requests of one town are submitted in the order of their arrival, on whatever lane the town is.
func TestEndpoint_Order(t *testing.T) {
	t.Parallel()
	const towns, each = 10, 200
	s := &Service{
		config:  Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults(),
		changes: newSlots(each, 4*towns*each),
	}
	s.held.bound = 1 << 30
	var mu sync.Mutex
	submitted := map[string][]int{}
	e := s.submits(wire.TownPut, func(in *incoming) (any, error) {
		var r struct{ Number int }
		err := json.Unmarshal(in.data, &r)
		mu.Lock()
		defer mu.Unlock()
		submitted[in.town] = append(submitted[in.town], r.Number)
		return nil, err
	}, maxRequest, 1)
	for i := range towns * each {
		s.admit(e, &incoming{data: fmt.Appendf(nil, `{"townId":"%d","number":%d}`, i%towns, i)})
	}
	for _, lane := range e.lanes {
		close(lane)
	}
	s.workers.Wait()
	require.Len(t, submitted, towns)
	for town, numbers := range submitted {
		require.Len(t, numbers, each, town)
		require.True(t, slices.IsSorted(numbers), "%v", numbers)
	}
}

// A refused signal keeps the members of its request that can be read.
func TestSalvage(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]messages.Signal{
		`{"townId":"t","runId":7,"actorId":"ada"}`: {TownID: "t", ActorID: "ada"},
		`{"townId":"t","runId":"r","actorId":"ada`: {TownID: "t", RunID: "r"},
		`{"townId":"t"} {`:                         {TownID: "t"},
		`town`:                                     {},
	} {
		var got messages.Signal
		salvage([]byte(data), &got)
		require.Equal(t, want, got, data)
	}
}
