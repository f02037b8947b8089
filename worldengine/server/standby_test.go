package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
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

// joined starts two servers of a world on an external NATS, of which the first one serves, with a
// client of it.
func joined(
	t *testing.T, change ...func(*server.Config),
) (*external, [2]*server.Server, *client) {
	t.Helper()
	nats := startExternal(t)
	change = append(change, func(c *server.Config) { c.NATS = nats.url() })
	both := [2]*server.Server{start(t, change...), start(t, change...)}
	oneServes(t, both)
	if both[1].Serving() { // a busy machine was late with the lease
		both[0], both[1] = both[1], both[0]
	}
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

// A NATS that was joined goes away and comes back: consumed keys stay consumed, and the world goes on.
func TestStandby_NATSRestarts(t *testing.T) {
	t.Parallel()
	nats, both, c := joined(t)
	failing := c.bridge(c.putTown("fails"))
	require.Equal(t, handoff.Failed, c.send(failing).result.Status)
	chain := newChain(t, c, "t")
	c.answered(chain.next())
	nats.restart()
	require.Equal(t, handoff.Duplicate, c.answered(failing).result.Status)
	c.answered(chain.next())
	oneServes(t, both)
	c.answered(chain.next())
	require.Equal(t, chain.at.SnapshotHash, c.town("t").SnapshotHash)
}

// A server that has joined an embedded NATS stands by: that NATS has a server of its own. One that
// could not serve the world is refused at its start, not when it is needed.
func TestStandby_OfAnEmbeddedNATS(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	join := func(c *server.Config) { c.NATS = srv.URL() }
	second := start(t, join)
	c := connect(t, srv)
	c.executes(newChain(t, c, "t").next())
	require.True(t, srv.Serving())
	require.False(t, second.Serving())
	require.ErrorContains(t, second.Ready(t.Context()), "standby")
	require.Nil(t, second.Engine())
	require.Zero(t, second.Created())
	_, err := server.Start(t.Context(), configure(join, byPlugin))
	var refused *commitlog.SettingsError
	require.ErrorAs(t, err, &refused)
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

// A server that has followed the log as it stood by does not serve one that lacks records, until
// the newer log is back.
func TestStandby_LogIsLost(t *testing.T) {
	t.Parallel()
	nats := startExternal(t)
	var both [2]*server.Server
	var end [2]func()
	for i := range both {
		srv, err := server.Start(t.Context(), configure(withHTTP, func(c *server.Config) { c.NATS = nats.url() }))
		require.NoError(t, err)
		both[i], end[i] = srv, sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = srv.Close(ctx) // NATS may be away
		})
		t.Cleanup(end[i])
	}
	c := connect(t, both[0])
	chain := newChain(t, c, "t")
	older := nats.copied()
	for range 5 {
		c.answered(chain.next())
	}
	oneServes(t, both)
	writer := slices.IndexFunc(both[:], (*server.Server).Serving)
	behind := both[1-writer]
	scrapesSoon(t, behind, fmt.Sprint("handoffd_indexed_sequence ", c.town("t").Revision))
	newer := nats.copied()
	nats.putBack(older)
	lost := func(srv *server.Server) {
		t.Helper()
		eventually(t, func() bool { return errors.Is(srv.Ready(t.Context()), commitlog.ErrLogLost) })
	}
	lost(both[writer])
	end[writer]()
	lost(behind)
	require.False(t, behind.Serving())
	nats.putBack(newer)
	c.answered(chain.next())
}

// putBack puts another store in the place of the store of an external NATS, which is away
// meanwhile.
func (e *external) putBack(store string) {
	e.t.Helper()
	natstest.Stop(e.server)
	require.NoError(e.t, os.RemoveAll(e.options.StoreDir))
	require.NoError(e.t, os.CopyFS(e.options.StoreDir, os.DirFS(store)))
	e.start()
}

// copied returns a copy of the store of an external NATS that is away for that.
func (e *external) copied() string {
	e.t.Helper()
	store := filepath.Join(e.t.TempDir(), "copy")
	natstest.Stop(e.server)
	require.NoError(e.t, os.CopyFS(store, os.DirFS(e.options.StoreDir)))
	e.start()
	return store
}

// lossy is a world of an external NATS, with four handoffs that were answered after a copy of the
// store was made. A town stays as it was then: idle.
type lossy struct {
	*client
	nats   *external
	srv    *server.Server
	older  string // the copy
	bodies [][]byte
	first  []outcome
	before townReply
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	w := &lossy{client: &client{t: t}, nats: startExternal(t)}
	w.serve()
	t.Cleanup(func() { stop(t, w.srv) })
	w.client = connect(t, w.srv)
	w.putTown("idle")
	chain := newChain(t, w.client, "t")
	w.send(chain.next())
	w.before = w.town("t")
	w.older = w.nats.copied()
	w.answers()
	for range 4 {
		w.bodies = append(w.bodies, chain.next())
		w.first = append(w.first, w.executes(w.bodies[len(w.first)]))
	}
	return w
}

// answers waits until the server and the client have found NATS again.
func (w *lossy) answers() {
	w.t.Helper()
	eventually(w.t, func() bool {
		reply, err := w.nc.Request(wire.Subject("main", "town.get"), []byte(`{"townId":"idle"}`),
			5*time.Second)
		return err == nil && codeOf(reply) != "503"
	})
}

func (w *lossy) serve() {
	w.t.Helper()
	var err error
	w.srv, err = server.Start(w.t.Context(), configure(func(c *server.Config) { c.NATS = w.nats.url() }))
	require.NoError(w.t, err)
}

// requireLost checks that the loss is told everywhere, and that nothing that was answered is
// executed again.
func (w *lossy) requireLost() {
	w.t.Helper()
	eventually(w.t, func() bool { // on a busy machine it may stand by for a moment
		refused := 0
		for _, body := range w.bodies {
			reply, err := w.nc.Request(wire.Subject("main", "handoff"), body, 5*time.Second)
			if err == nil {
				require.NotContains(w.t, string(reply.Data), `"status":"executed"`)
				if strings.Contains(string(reply.Data), "LOG_UNAVAILABLE") {
					refused++
				}
			}
		}
		return refused == len(w.bodies) && errors.Is(w.srv.Ready(w.t.Context()), commitlog.ErrLogLost)
	})
	w.answers()
	require.Contains(w.t, w.srv.Engine().Stats().LogLost, w.first[3].runID)
	lost := w.awaitAlert(runevents.LogLost)
	for _, o := range w.first {
		require.Contains(w.t, lost.Message, `of town "t", run `+o.runID)
	}
}

// awaitReady waits until the server is ready.
func (w *lossy) awaitReady() {
	w.t.Helper()
	eventually(w.t, func() bool { return w.srv.Ready(w.t.Context()) == nil })
}

// An older copy of the data of an external NATS, put under a running server, is noticed before
// anything is judged on it. The server goes on when the newer data is back, or with the older log if
// an operator accepts the loss by a new start.
func TestLogLost_OlderCopy(t *testing.T) {
	t.Parallel()
	w := newLossy(t)
	newer := w.nats.copied()
	w.nats.putBack(w.older)
	w.requireLost()
	require.EqualValues(t, 1, w.srv.Engine().Stats().Alerts[runevents.LogLost])
	require.Equal(t, w.before, w.town("t"), "reads tell what the log has")
	w.refuses("town.put", putRequest(snapshot("new"), ""), "LOG_UNAVAILABLE")

	w.nats.putBack(newer)
	w.awaitReady()
	w.answers()
	for i, body := range w.bodies {
		requireDuplicateOf(t, w.first[i], w.send(body))
	}
	w.nats.putBack(w.older)
	w.requireLost()
	stop(t, w.srv)
	w.serve()
	w.awaitReady()
	w.send(w.bodies[0]) // a duplicate, if a busy machine answered 503 after the execution
	require.Equal(t, w.before.DecisionEpoch+1, w.town("t").DecisionEpoch)
}

// A server that starts on a log which is older than its index names the records that are lost, keeps
// the old file of the index, and serves the log as it is.
func TestLogLost_BeforeAStart(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	store, older := filepath.Join(dataOf(c), "jetstream"), filepath.Join(t.TempDir(), "older")
	chain := newChain(t, c.client, "t")
	first := chain.next()
	c.executes(first)
	stop(t, c.srv)
	require.NoError(t, os.CopyFS(older, os.DirFS(store)))
	c.start()
	var bodies [][]byte
	for range 12 {
		bodies = append(bodies, chain.next())
		c.executes(bodies[len(bodies)-1])
	}
	last := c.town("t").Revision
	stop(t, c.srv)
	require.NoError(t, os.RemoveAll(store))
	require.NoError(t, os.CopyFS(store, os.DirFS(older)))
	c.start()
	require.FileExists(t, fmt.Sprintf("%s.lost-%d", indexFile(dataOf(c)), last))
	lost := c.awaitAlert(runevents.LogLost)
	require.Contains(t, lost.Message, fmt.Sprintf("log sequence %d of town t (handoff); ", last))
	require.Contains(t, lost.Message, "; and 2 more; ")
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
	for _, body := range bodies {
		c.executes(body) // it is lost, and comes again
	}
}
