package service

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
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
			close(e.work)
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
			e := &endpoint{about: aboutTown, slots: queue.NewSlots(2, 4), work: make(chan *incoming, 4)}
			s.admit(e, &incoming{
				entrance: &Entrance{Requests: nc, Replies: nc}, inbox: replies.Subject,
			})
			require.Equal(t, 1, s.Overload().Held)
			func() {
				defer func() { _ = recover() }() // as the engine's queue does
				row.answer(s, <-e.work)
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

// Handoffs that are parsed in any order are submitted in the order of their arrival, each as soon
// as all before it are parsed.
func TestLine_Order(t *testing.T) {
	t.Parallel()
	const n = 100
	g := rand.New(rand.NewPCG(7, 7))
	var l line
	arrived, parsed := make([]*incoming, n), make([]bool, n)
	var submitted, want []int
	for i := range arrived {
		arrived[i] = new(incoming)
		l.join(arrived[i])
	}
	for _, i := range g.Perm(n) {
		parsed[i] = true
		if i%7 > 0 { // others are refused
			arrived[i].submit = func() { submitted = append(submitted, i) }
		}
		l.parsed(arrived[i])
		want = nil
		for j := 0; j < n && parsed[j]; j++ {
			if j%7 > 0 {
				want = append(want, j)
			}
		}
		require.Equal(t, want, submitted)
	}
	require.Len(t, submitted, 85)
	require.Empty(t, l.waiting)
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
