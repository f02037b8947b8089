package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// joined starts two servers of a world on an external NATS, with a client of it.
func joined(t *testing.T) (*external, [2]*server.Server, *client) {
	t.Helper()
	nats := startExternal(t)
	join := func(c *server.Config) { c.NATS = nats.url() }
	both := [2]*server.Server{start(t, join), start(t, join)}
	require.True(t, both[0].Serving())
	require.False(t, both[1].Serving())
	return nats, both, connect(t, both[0])
}

// oneServes waits until one of two servers serves for a while, and the other does not.
func oneServes(t *testing.T, both [2]*server.Server) {
	t.Helper()
	since := time.Now()
	require.Eventually(t, func() bool {
		if both[0].Serving() == both[1].Serving() {
			since = time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	}, time.Minute, 5*time.Millisecond)
}

// executes has a town executed a handoff, sent until it is answered.
func executes(t *testing.T, c *client, body []byte) {
	t.Helper()
	var got handoff.Status
	c.within = time.Second
	require.Eventually(t, func() bool {
		reply, err := c.nc.Request(wire.Subject(c.world, wire.Handoff), body, c.within)
		if err != nil || reply.Header.Get(wire.ErrorCodeHeader) != "" {
			return false
		}
		got = c.resultOf(reply).result.Status
		return true
	}, time.Minute, 20*time.Millisecond)
	require.Contains(t, []handoff.Status{handoff.Executed, handoff.Duplicate}, got)
}

func TestStandby_NATSRestarts(t *testing.T) {
	t.Parallel()
	nats, both, c := joined(t)
	chain := newChain(t, c, "t")
	for range 3 {
		executes(t, c, chain.next())
		nats.restart()
	}
	executes(t, c, chain.next())
	oneServes(t, both)
	executes(t, c, chain.next())
	c.within = 0
	require.Equal(t, chain.at.SnapshotHash, c.town("t").SnapshotHash)
}

func TestStandby_LeaseIsDeleted(t *testing.T) {
	t.Parallel()
	_, both, c := joined(t)
	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	chain := newChain(t, c, "t")
	for range 3 {
		require.NoError(t, js.DeleteKeyValue(t.Context(), wire.WriterBucket(c.world)))
		for range 20 {
			executes(t, c, chain.next())
		}
		oneServes(t, both)
	}
	c.within = 0
	require.Equal(t, chain.at.SnapshotHash, c.town("t").SnapshotHash)
}

// A server that has joined an embedded NATS stands by: that NATS has a server of its own.
func TestStandby_OfAnEmbeddedNATS(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	second := start(t, func(c *server.Config) { c.NATS = srv.URL() })
	c := connect(t, srv)
	executes(t, c, newChain(t, c, "t").next())
	require.True(t, srv.Serving())
	require.False(t, second.Serving())
	require.ErrorContains(t, second.Ready(t.Context()), "standby")
	require.Nil(t, second.Engine())
	require.Zero(t, second.Created())
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
	writer, err := server.Start(t.Context(), configure(join, withMetrics))
	require.NoError(t, err)
	behind, err := server.Start(t.Context(), configure(join, withMetrics))
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
		executes(t, c, chain.next())
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
		require.Eventually(t, func() bool {
			return errors.Is(srv.Ready(t.Context()), commitlog.ErrLogLost)
		}, time.Minute, 10*time.Millisecond)
	}
	lost(writer)
	end(writer)
	lost(behind)
	require.False(t, behind.Serving())
	nats.putBack(newer)
	executes(t, c, chain.next())
}
