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
	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
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
		take := s.reads(wire.TownGet, handle).handle
		sub, err := nc.Subscribe(verb, func(msg *nats.Msg) {
			take(&incoming{reply: replyTo{entrance: in, inbox: msg.Reply}, data: msg.Data})
		})
		require.NoError(t, err)
		subs = append(subs, sub)
	}
	t.Cleanup(func() {
		for _, sub := range subs {
			require.NoError(t, sub.Unsubscribe())
		}
		require.NoError(t, nc.Flush())
		for _, p := range s.pools {
			close(p.work)
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
		"slow": func(context.Context, access.Rights, []byte) ([]byte, error) {
			<-open
			return []byte("slow"), nil
		},
		"quick": func(context.Context, access.Rights, []byte) ([]byte, error) {
			return []byte("quick"), nil
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

// A panic is answered, and what the request had is given back.
func TestAPanicGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, map[string]reader{
		"defect": func(context.Context, access.Rights, []byte) ([]byte, error) {
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

// A panic where the engine's answer is made is answered, and what the request had is given back,
// once. So is one that comes while the engine itself panics, as its tasks tell what they have then.
func TestAPanicInAnAnswerGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, nil)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	slots, to := s.addSlots(2, 4), replyTo{entrance: &Entrance{Requests: nc, Replies: nc},
		inbox: replies.Subject}
	defect := func() (*nats.Msg, error) { panic("a defect, on purpose") }
	for name, answer := range map[string]func(*slot){
		"no town":  func(held *slot) { s.answerTown(held, to, worldengine.Town{}, nil) },
		"anything": func(held *slot) { s.finish(held, to, defect) },
		"while another unwinds": func(held *slot) {
			defer s.finish(held, to, defect)
			panic("the engine's")
		},
	} {
		p := s.admit(arriving(""), slots, []byte("t"), 100)
		require.NotNil(t, p)
		func() {
			defer func() { _ = recover() }() // as the engine's queue does
			answer(p)
		}()
		require.Zero(t, s.Overload().Held, name)
		require.Zero(t, s.Overload().HeldBytes, name)
		require.NoError(t, nc.Flush())
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err, name)
		require.Equal(t, "500", reply.Header.Get(wire.ErrorCodeHeader), name)
		pending, _, err := replies.Pending()
		require.NoError(t, err)
		require.Zero(t, pending, name)
	}
}

// What the engine's queue refuses after it was read gives back what it had, and gets 429.
func TestARefusalOfTheQueueGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, nil)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	slots, to := s.addSlots(2, 4), replyTo{entrance: &Entrance{Requests: nc, Replies: nc},
		inbox: replies.Subject}
	held := s.admit(arriving(""), slots, []byte("t"), 100)
	require.NotNil(t, held)
	require.Equal(t, 1, s.Overload().Held)
	s.finish(held, to, func() (*nats.Msg, error) { return nil, worldengine.ErrOverloaded })
	require.Zero(t, s.Overload().Held)
	require.Zero(t, s.Overload().HeldBytes)
	require.Equal(t, int64(1), s.Overload().Refused["queue"])
	require.NoError(t, nc.Flush())
	reply, err := replies.NextMsg(20 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "429", reply.Header.Get(wire.ErrorCodeHeader))
}
