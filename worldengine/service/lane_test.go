package service

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/natstest"
)

// onlyReads returns a service without an engine that answers verbs of the test.
func onlyReads(t *testing.T, nc *nats.Conn, verbs map[string]func(context.Context, []byte) ([]byte, error)) *Service {
	t.Helper()
	s := &Service{
		config: Config{Readers: 1, Waiting: 2, Logger: slog.New(slog.DiscardHandler)}.withDefaults(), ctx: t.Context(),
		requests: nc, replies: nc,
	}
	s.held.bound = s.config.MaxHeld
	svc, err := micro.AddService(nc, micro.Config{Name: "test", Version: "0.0.0"})
	require.NoError(t, err)
	for verb, handle := range verbs {
		require.NoError(t, svc.AddEndpoint(verb, micro.HandlerFunc(s.reads(aboutTown, s.config.Waiting, handle))))
	}
	t.Cleanup(func() {
		require.NoError(t, svc.Stop())
		require.NoError(t, nc.Flush())
		for _, l := range s.lanes {
			close(l.work)
		}
		s.workers.Wait()
	})
	return s
}

// A flood of one read fills its own places, half of them at most about one town, and no other verb notices.
func TestAFloodOfOneVerb(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	open := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(open) }) }
	s := onlyReads(t, nc, map[string]func(context.Context, []byte) ([]byte, error){
		"slow":  func(context.Context, []byte) ([]byte, error) { <-open; return []byte("slow"), nil },
		"quick": func(context.Context, []byte) ([]byte, error) { return []byte("quick"), nil },
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
		require.Equal(t, "429", next().Header.Get(micro.ErrorCodeHeader))
	}
	reply, err := nc.Request("quick", nil, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "quick", string(reply.Data))
	require.NoError(t, nc.PublishRequest("slow", replies.Subject, []byte(`{"townId":"b"}`)), "another town")
	release()
	for range 3 {
		require.Equal(t, "slow", string(next().Data))
	}
	require.Equal(t, int64(flood-2), s.overload().Refused["town"])
	require.Zero(t, s.overload().Held)
}

// A panic is answered, and what the request had is given back.
func TestAPanicGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, map[string]func(context.Context, []byte) ([]byte, error){
		"defect": func(context.Context, []byte) ([]byte, error) { panic("a defect, on purpose") },
	})
	for range 20 {
		reply, err := nc.Request("defect", []byte(`{"townId":"a"}`), 20*time.Second)
		require.NoError(t, err)
		require.Equal(t, "500", reply.Header.Get(micro.ErrorCodeHeader))
	}
	require.Zero(t, s.overload().Held)
	require.Zero(t, s.overload().HeldBytes)
}

// A panic where the engine's answer is made is answered, and what the request had is given back, once. So is
// one that comes while the engine itself panics, as its tasks tell what they have then.
func TestAPanicInAnAnswerGivesBack(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	s := onlyReads(t, nc, nil)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	in := s.addPlaces(2, 4)
	defect := func() (*nats.Msg, error) { panic("a defect, on purpose") }
	for name, answer := range map[string]func(*place){
		"no town":  func(p *place) { s.answerTown(p, replies.Subject, worldengine.Town{}, nil) },
		"anything": func(p *place) { s.conclude(p, replies.Subject, defect) },
		"while another unwinds": func(p *place) {
			defer s.conclude(p, replies.Subject, defect)
			panic("the engine's")
		},
	} {
		p := s.admit(arriving{data: ""}, in, []byte("t"), 100)
		require.NotNil(t, p)
		func() {
			defer func() { _ = recover() }() // as the engine's queue does
			answer(p)
		}()
		require.Zero(t, s.overload().Held, name)
		require.Zero(t, s.overload().HeldBytes, name)
		require.NoError(t, nc.Flush())
		reply, err := replies.NextMsg(20 * time.Second)
		require.NoError(t, err, name)
		require.Equal(t, "500", reply.Header.Get(micro.ErrorCodeHeader), name)
		pending, _, err := replies.Pending()
		require.NoError(t, err)
		require.Zero(t, pending, name)
	}
}
