package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// external is a NATS server that is not the engine's own.
type external struct {
	t       *testing.T
	options natsserver.Options
	server  *natsserver.Server
}

func startExternal(t *testing.T) *external {
	t.Helper()
	e := &external{t: t, options: natsserver.Options{
		Port: natstest.FreePort(t), JetStream: true, StoreDir: t.TempDir(),
	}}
	e.start()
	t.Cleanup(func() { natstest.Stop(e.server) })
	return e
}

func (e *external) start() {
	e.t.Helper()
	e.server = natstest.Run(e.t, &e.options) // at the same address after a restart
}

func (e *external) url() string { return e.server.ClientURL() }

func (e *external) restart() {
	e.t.Helper()
	natstest.Stop(e.server)
	e.start()
}

// joined starts two servers of a world on an external NATS, with a client of it.
func joined(
	t *testing.T, change ...func(*server.Config),
) (*external, [2]*server.Server, *client) {
	t.Helper()
	nats := startExternal(t)
	change = append(change, func(c *server.Config) { c.NATS = nats.url() })
	both := [2]*server.Server{start(t, change...), start(t, change...)}
	require.True(t, both[0].Serving())
	require.False(t, both[1].Serving())
	return nats, both, connect(t, both[0])
}

// oneServes waits until one of two servers serves for a while, and the other does not.
func oneServes(t *testing.T, both [2]*server.Server) {
	t.Helper()
	since := time.Now()
	eventually(t, func() bool {
		if both[0].Serving() == both[1].Serving() {
			since = time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

// answered sends a handoff until it is answered.
func (c *client) answered(body []byte) (got outcome) {
	c.t.Helper()
	eventually(c.t, func() bool {
		reply, err := c.nc.Request(wire.Subject(c.world, wire.Handoff), body, time.Second)
		if err != nil || codeOf(reply) != "" {
			return false
		}
		got = c.resultOf(reply)
		return true
	})
	return got
}

// executed sends a handoff until it is executed.
func (c *client) executed(body []byte) {
	c.t.Helper()
	require.Contains(c.t, []handoff.Status{handoff.Executed, handoff.Duplicate},
		c.answered(body).result.Status)
}

// A NATS that was joined goes away and comes back: consumed keys stay consumed, and the world goes on.
func TestStandby_NATSRestarts(t *testing.T) {
	t.Parallel()
	nats, both, c := joined(t)
	failing := c.bridge(c.putTown("fails"))
	require.Equal(t, handoff.Failed, c.send(failing).result.Status)
	chain := newChain(t, c, "t")
	c.executed(chain.next())
	nats.restart()
	require.Equal(t, handoff.Duplicate, c.answered(failing).result.Status)
	c.executed(chain.next())
	oneServes(t, both)
	c.executed(chain.next())
	require.Equal(t, chain.at.SnapshotHash, c.town("t").SnapshotHash)
}

// A server that has joined an embedded NATS stands by: that NATS has a server of its own.
func TestStandby_OfAnEmbeddedNATS(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	second := start(t, func(c *server.Config) { c.NATS = srv.URL() })
	c := connect(t, srv)
	c.executed(newChain(t, c, "t").next())
	require.True(t, srv.Serving())
	require.False(t, second.Serving())
	require.ErrorContains(t, second.Ready(t.Context()), "standby")
	require.Nil(t, second.Engine())
	require.Zero(t, second.Created())
}

// A server that stands by is listed as long as it does.
func TestStandby_Listed(t *testing.T) {
	t.Parallel()
	_, both, c := joined(t)
	s := c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 2 })
	require.True(t, s.Servers[0].Writer)
	require.False(t, s.Servers[1].Writer)
	require.NotEqual(t, s.Servers[0].ID, s.Servers[1].ID)
	require.Contains(t, s.Unknown, "disk")
	first := s.Servers[0].ID
	stop(t, both[0])
	c = connect(t, both[1])
	s = c.awaitStatus(func(s messages.WorldReport) bool { return len(s.Servers) == 1 })
	require.NotEqual(t, first, s.Servers[0].ID)
}

// A server that could not serve the world is refused at its start, not when it is needed.
func TestStandby_OtherSettings(t *testing.T) {
	t.Parallel()
	nats, _, _ := joined(t)
	_, err := server.Start(t.Context(), configure(func(c *server.Config) {
		c.NATS, c.Engine.Apply = nats.url(), "plugin"
	}))
	var refused *commitlog.SettingsError
	require.ErrorAs(t, err, &refused)
}

// A server that has followed the log as it stood by does not serve one that lacks records, until
// the newer log is back.
func TestStandby_LogIsLost(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	join := func(c *server.Config) { c.NATS = nats.url() }
	writer, err := server.Start(t.Context(), configure(join, withHTTP))
	require.NoError(t, err)
	behind, err := server.Start(t.Context(), configure(join, withHTTP))
	require.NoError(t, err)
	end := func(srv *server.Server) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = srv.Close(ctx) // NATS may be away
	}
	c := connect(t, writer)
	chain := newChain(t, c, "t")
	older := nats.copied()
	for range 5 {
		c.executed(chain.next())
	}
	oneServes(t, [2]*server.Server{writer, behind})
	if behind.Serving() {
		writer, behind = behind, writer
	}
	defer end(behind)
	scrapesSoon(t, behind, fmt.Sprint("handoffd_indexed_sequence ", c.town("t").Revision))

	newer := nats.copied()
	nats.putBack(older)
	lost := func(srv *server.Server) {
		t.Helper()
		eventually(t, func() bool { return errors.Is(srv.Ready(t.Context()), commitlog.ErrLogLost) })
	}
	lost(writer)
	end(writer)
	lost(behind)
	require.False(t, behind.Serving())
	nats.putBack(newer)
	c.executed(chain.next())
}
