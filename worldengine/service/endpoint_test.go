package service

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// onlyReads returns a service without an engine that answers verbs of the test.
func onlyReads(t *testing.T, nc *nats.Conn, verbs map[string]reader) *Service {
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
	for verb, handle := range verbs {
		e := s.reads(wire.TownGet, handle)
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
func TestAFloodOfOneVerb(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	open := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(open) }) }
	s := onlyReads(t, nc, map[string]reader{
		"slow": func(context.Context, *incoming) (*nats.Msg, error) {
			<-open
			return &nats.Msg{Data: []byte("slow")}, nil
		},
		"quick": func(context.Context, *incoming) (*nats.Msg, error) {
			return &nats.Msg{Data: []byte("quick")}, nil
		},
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
		require.Equal(t, "429", next().Header.Get(wire.ErrorCodeHeader))
	}
	reply, err := nc.Request("quick", nil, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "quick", string(reply.Data))
	require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"b"}`)),
		"another town")
	release()
	for range 3 {
		require.Equal(t, "slow", string(next().Data))
	}
	require.Equal(t, int64(flood-2), s.Overload().Refused["town"])
	require.Zero(t, s.Overload().Held)
}

// A panic is answered, and the slot of the request is given back.
func TestAPanicGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, map[string]reader{
		"defect": func(context.Context, *incoming) (*nats.Msg, error) {
			panic("a defect, on purpose")
		},
	})
	for range 20 {
		reply, err := nc.Request("defect", []byte(`{"townId":"a"}`), 20*time.Second)
		require.NoError(t, err)
		require.Equal(t, "500", reply.Header.Get(wire.ErrorCodeHeader))
	}
	require.Zero(t, s.Overload().Held)
	require.Zero(t, s.Overload().HeldBytes)
}

// A panic while the engine's answer is made is answered, and the request gives back its slot once.
// So it does while the engine itself panics, as its tasks answer then too.
func TestAPanicInAnAnswerGivesBack(t *testing.T) {
	t.Parallel()
	defect := func() (*nats.Msg, error) { panic("a defect, on purpose") }
	for name, answer := range map[string]func(*Service, *incoming){
		"no town":  func(s *Service, in *incoming) { s.answerTown(in)(worldengine.Town{}, nil) },
		"anything": func(s *Service, in *incoming) { s.finish(in, nil, defect) },
		"while another unwinds": func(s *Service, in *incoming) {
			defer s.finish(in, nil, defect)
			panic("the engine's")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, code := heldThen(t, answer)
			require.Equal(t, "500", code)
			require.Zero(t, s.Overload().HeldBytes)
		})
	}
}

// A request that the engine's queue refuses after it was read gives back its slot, and gets 429.
func TestARefusalOfTheQueueGivesBack(t *testing.T) {
	t.Parallel()
	s, code := heldThen(t, func(s *Service, in *incoming) {
		s.finish(in, worldengine.ErrOverloaded, nil)
	})
	require.Equal(t, "429", code)
	require.Zero(t, s.Overload().HeldBytes)
	require.Equal(t, int64(1), s.Overload().Refused["queue"])
}

// heldThen admits a request, has it answered, and returns the status of its only answer. The
// request has given back its slot by then.
func heldThen(t *testing.T, answer func(*Service, *incoming)) (*Service, string) {
	t.Helper()
	nc := natstest.Connect(t)
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
		answer(s, <-e.work)
	}()
	require.Zero(t, s.Overload().Held)
	require.NoError(t, nc.Flush())
	reply, err := replies.NextMsg(20 * time.Second)
	require.NoError(t, err)
	pending, _, err := replies.Pending()
	require.NoError(t, err)
	require.Zero(t, pending)
	return s, reply.Header.Get(wire.ErrorCodeHeader)
}
