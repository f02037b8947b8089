package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

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
// store was made.
type lossy struct {
	*client
	nats   *external
	srv    *server.Server
	log    *natstest.Buffer
	older  string // the copy
	bodies [][]byte
	// runs and results are the ids of their runs and results.
	runs, results []string
	before        townReply
}

// idle is a town that stays as it was when the copy was made.
const idle = "idle"

func newLossy(t *testing.T) *lossy {
	t.Helper()
	w := &lossy{
		client: &client{t: t}, nats: startExternal(t), log: &natstest.Buffer{},
	}
	w.serve()
	t.Cleanup(func() { stop(t, w.srv) })
	w.client = connect(t, w.srv)
	w.putTown(idle)
	chain := newChain(t, w.client, "t")
	w.send(chain.next())
	w.before = w.town("t")
	w.older = w.nats.copied()
	w.answers()
	for range 4 {
		body := chain.next()
		o := w.executes(body)
		w.bodies, w.runs = append(w.bodies, body), append(w.runs, o.runID)
		w.results = append(w.results, o.result.ResultID)
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
	w.srv, err = server.Start(w.t.Context(), configure(w.join))
	require.NoError(w.t, err)
}

func (w *lossy) join(c *server.Config) {
	c.NATS, c.Logger = w.nats.url(), slog.New(slog.NewTextHandler(w.log, nil))
}

// requireLost checks that the loss is told everywhere, and that nothing that was answered is
// executed again.
func (w *lossy) requireLost() {
	w.t.Helper()
	eventually(w.t, func() bool {
		for _, body := range w.bodies {
			reply, err := w.nc.Request(wire.Subject("main", "handoff"), body, 5*time.Second)
			if err == nil {
				require.NotContains(w.t, string(reply.Data), `"status":"executed"`)
			}
		}
		engine := w.srv.Engine() // nil while it stands by
		return engine != nil && engine.LogLost() != nil
	})
	w.answers()
	eventually(w.t, func() bool { // on a busy machine it may stand by for a moment
		return errors.Is(w.srv.Ready(w.t.Context()), commitlog.ErrLogLost)
	})
	require.Contains(w.t, w.srv.Engine().Stats().LogLost, w.runs[3])
	for _, body := range w.bodies[:2] {
		w.refuses("handoff", body, "LOG_UNAVAILABLE")
	}
	lost := w.awaitAlert(runevents.LogLost)
	require.Equal(w.t, runevents.P1, lost.Severity)
	for _, run := range w.runs {
		require.Contains(w.t, lost.Message, `of town "t", run `+run)
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
		again := w.send(body).result
		require.Equal(t, handoff.Duplicate, again.Status)
		require.Equal(t, w.results[i], *again.Evaluation.DuplicateCheck.DuplicateOf)
	}

	w.nats.putBack(w.older)
	w.requireLost()
	stop(t, w.srv)
	w.serve()
	w.awaitReady()
	w.send(w.bodies[0]) // a duplicate, if a busy machine answered 503 after the execution
	require.Equal(t, w.before.DecisionEpoch+1, w.town("t").DecisionEpoch)
}

// If NATS goes on under the server, the next commit shows that the log is an older one: nobody
// is told that the handoff was executed.
func TestLogLost_WithTheNextCommit(t *testing.T) {
	t.Parallel()
	w := newLossy(t)
	js := w.streams()
	stream, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	require.NoError(t, js.DeleteStream(t.Context(), config.Name))
	_, err = js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = w.srv.Engine().Put(ctx, town.NewState(snapshot("new")), "")
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	w.requireLost()
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
	eventually(t, func() bool { return c.srv.Ready(t.Context()) == nil })
	require.FileExists(t, fmt.Sprintf("%s.lost-%d", indexFile(dataOf(c)), last))
	lost := c.awaitAlert(runevents.LogLost)
	require.Equal(t, []string{"LOG_LOST "}, alertsOf(c.client))
	require.Contains(t, lost.Message, fmt.Sprintf("log sequence %d of town t (handoff); ", last))
	require.Contains(t, lost.Message, "; and 2 more; ")
	require.Equal(t, handoff.Duplicate, c.send(first).result.Status)
	for _, body := range bodies {
		c.executes(body) // it is lost, and comes again
	}
}
