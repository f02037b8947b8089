package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// newService returns a service without worlds, and a client of it.
func newService(t *testing.T) (*Service, *nats.Conn) {
	t.Helper()
	client, throttle := natstest.Connect(t), new(Throttle)
	nc := natstest.Dial(t, client.ConnectedUrl(), nats.SetCustomDialer(wrapping{throttle}))
	s := New([]Listener{{Requests: nc, Replies: client, Throttle: throttle}},
		Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { require.NoError(t, s.Stop(soon(t))) })
	return s, client
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// who returns the world that answers who.am.i on the subject of a world.
func who(t *testing.T, nc *nats.Conn, world string) (string, error) {
	t.Helper()
	reply, err := nc.Request(wire.Subject(world, wire.WhoAmI), nil, time.Minute)
	if err != nil {
		return "", err
	}
	var id struct{ World string }
	require.NoError(t, json.Unmarshal(reply.Data, &id), "%s", reply.Data)
	return id.World, nil
}

// Worlds are opened and closed while the service runs. An open world answers for itself, a closed one
// has no responders, and discovery names the open ones.
func TestService_OpenAndClose(t *testing.T) {
	t.Parallel()
	s, nc := newService(t)
	_, err := who(t, nc, "a")
	require.ErrorIs(t, err, nats.ErrNoResponders)
	_, err = nc.Request("$SRV.PING", nil, time.Minute)
	require.ErrorIs(t, err, nats.ErrNoResponders)
	open := map[string]*ServedWorld{}
	for _, name := range []string{"a", "b", "a-b"} {
		open[name], err = s.Open(WorldConfig{World: name})
		require.NoError(t, err)
	}
	_, err = s.Open(WorldConfig{World: "a"})
	require.ErrorContains(t, err, "the world a is open already")
	for name := range open {
		answered, err := who(t, nc, name)
		require.NoError(t, err)
		require.Equal(t, name, answered)
	}
	require.NoError(t, open["a"].Close(soon(t)))
	_, err = who(t, nc, "a")
	require.ErrorIs(t, err, nats.ErrNoResponders)
	answered, err := who(t, nc, "b")
	require.NoError(t, err)
	require.Equal(t, "b", answered)

	inbox, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	require.NoError(t, nc.PublishRequest("$SRV.PING."+protocol.ServiceName, inbox.Subject, nil))
	for _, name := range []string{"a-b", "b"} {
		var ping micro.Ping
		msg, err := inbox.NextMsg(time.Minute)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(msg.Data, &ping))
		require.Equal(t, name, ping.Metadata[protocol.WorldMetadata])
	}
	again, err := s.Open(WorldConfig{World: "a", HasLease: func() bool { return true }})
	require.NoError(t, err)
	require.EqualValues(t, 0, again.endpointStats(s.endpoints[0]).NumRequests)
	answered, err = who(t, nc, "a")
	require.NoError(t, err)
	require.Equal(t, "a", answered)
	require.NoError(t, s.Stop(soon(t)))
	_, err = s.Open(WorldConfig{World: "c"})
	require.ErrorIs(t, err, engine.ErrStopping)
}

// Close answers every request that NATS has given to the world, and the others get no responders.
func TestWorld_CloseUnderLoad(t *testing.T) {
	t.Parallel()
	s, nc := newService(t)
	w, err := s.Open(WorldConfig{World: "a"})
	require.NoError(t, err)
	_, err = s.Open(WorldConfig{World: "b"})
	require.NoError(t, err)
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	const requests = 2000
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < requests && err == nil; i++ {
			err = nc.PublishRequest(wire.Subject("a", wire.WhoAmI), replies.Subject, nil)
			sent.Add(1)
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return sent.Load() > requests/4 }, time.Minute,
		50*time.Microsecond)
	require.NoError(t, w.Close(soon(t)))
	require.NoError(t, <-done)
	for i := range requests {
		_, err := replies.NextMsg(time.Minute) // an answer or, as a message, no responders
		if err != nil {
			require.ErrorIs(t, err, nats.ErrNoResponders, "request %d", i)
		}
	}
	answered, err := who(t, nc, "b")
	require.NoError(t, err)
	require.Equal(t, "b", answered)
	require.Zero(t, w.Overload().Held)
}

// The worlds take turns at the workers of a verb, and the requests of one world keep their order.
func TestLane_Turns(t *testing.T) {
	t.Parallel()
	l := newLane()
	a := newWorld(Config{})
	b, c := openAnother(a.service, "b"), openAnother(a.service, "c")
	for i := range 4 {
		l.put(&incoming{addressee: a.addressee, inbox: fmt.Sprint("a", i)})
	}
	l.put(&incoming{addressee: b.addressee, inbox: "b0"})
	l.put(&incoming{addressee: b.addressee, inbox: "b1"})
	l.put(&incoming{addressee: c.addressee, inbox: "c0"})
	l.close()
	var order []string
	for in := l.next(); in != nil; in = l.next() {
		order = append(order, in.inbox)
	}
	require.Equal(t, []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}, order)
	require.Empty(t, l.waiting)
}
