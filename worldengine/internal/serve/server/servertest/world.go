package servertest

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// testTimeout bounds each wait on a busy machine.
const testTimeout = time.Minute

// Change changes the configuration of a server.
type Change = func(*server.Config)

// World is a server in this process, which ends with the test. Stopped, it can be started again, on its
// port and its data.
type World struct {
	*server.Server               // nil while it is stopped
	Config         server.Config // of the next start
	// BeforeStop, if set, is called with the server before it ends.
	BeforeStop func(*server.Server)

	t        testing.TB
	operator *nats.Conn
}

// Start starts a server with a data directory of its own, after changes.
func Start(t testing.TB, change ...Change) *World {
	t.Helper()
	own := func(c *server.Config) { c.Embedded.Data, c.Embedded.Listen = t.TempDir(), natstest.FreeAddress(t) }
	w := &World{t: t, Config: Configure(append([]Change{own}, change...)...)}
	t.Cleanup(w.Stop)
	w.Start()
	return w
}

// Configure returns the configuration of a server with a free port and without a log, after changes.
func Configure(change ...Change) server.Config {
	config := server.Config{Logger: slog.New(slog.DiscardHandler),
		Embedded: embedded.Config{Listen: "127.0.0.1:0", Sync: embedded.SyncInterval}}
	for _, c := range change {
		c(&config)
	}
	return config
}

// Start starts the server again after Stop, with more changes from now on.
func (w *World) Start(change ...Change) {
	w.t.Helper()
	for _, c := range change {
		c(&w.Config)
	}
	srv, err := server.Start(context.WithoutCancel(w.t.Context()), w.Config)
	require.NoError(w.t, err)
	w.Server = srv
}

// Stop ends the server, unless it is stopped.
func (w *World) Stop() {
	w.t.Helper()
	if w.Server == nil {
		return
	}
	if w.operator != nil {
		w.operator.Close()
		w.operator = nil
	}
	srv := w.Server
	w.Server = nil
	if w.BeforeStop != nil {
		w.BeforeStop(srv)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	require.NoError(w.t, srv.Close(ctx))
}

// Restart stops the server and starts it again, with more changes from now on.
func (w *World) Restart(change ...Change) {
	w.t.Helper()
	w.Stop()
	w.Start(change...)
}

// Connect connects to the server until the test ends.
func (w *World) Connect(options ...nats.Option) *nats.Conn {
	w.t.Helper()
	return natstest.Dial(w.t, w.URL(), append([]nats.Option{nats.MaxReconnects(-1)}, options...)...)
}

// Client returns a client of the default world, which may wait long for answers.
func (w *World) Client(options ...nats.Option) *client.Client {
	w.t.Helper()
	c := client.New(w.Connect(options...), wire.DefaultWorld)
	c.Timeout = testTimeout
	return c
}

// Operator returns a connection with the rights of the server's operator, also on its streams. It ends with
// the server.
func (w *World) Operator() *nats.Conn {
	w.t.Helper()
	var err error
	for tries := 0; w.operator == nil && tries < 3; tries++ { // NATS gives a busy machine little time to sign in
		w.operator, err = natsconn.Options{}.ConnectOperator(w.URL(), "operator")
	}
	require.NoError(w.t, err)
	return w.operator
}

// Streams returns the streams of the server, for Operator.
func (w *World) Streams() jetstream.JetStream {
	w.t.Helper()
	js, err := jetstream.New(w.Operator())
	require.NoError(w.t, err)
	return js
}

// Stream returns one of its streams.
func (w *World) Stream(name string) jetstream.Stream {
	w.t.Helper()
	stream, err := w.Streams().Stream(w.t.Context(), name)
	require.NoError(w.t, err)
	return stream
}

// OpenEngine opens one more engine on the NATS of a server that is Open. The engine ends with the test.
func OpenEngine(t testing.TB, nc *nats.Conn, config engine.Config) *engine.Engine {
	t.Helper()
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	e, err := engine.Open(t.Context(), nc, nc, config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		require.NoError(t, e.Close(ctx))
	})
	return e
}

// Frontier lets the world begin with the towns of the examples.
func Frontier(c *server.Config) { c.Worlds.Towns = worlds.Frontier }

// Open gives every client all rights.
func Open(c *server.Config) { c.Open = true }

// Worlds are the worlds of the server.
func Worlds(names ...string) Change {
	return func(c *server.Config) { c.Worlds.Names = names }
}

// Engine sets the settings of the engine.
func Engine(config engine.Config) Change {
	return func(c *server.Config) { c.Engine = config }
}

// Joining lets the server join the NATS of a connection, instead of embedding one.
func Joining(nc *nats.Conn) Change {
	return func(c *server.Config) { c.External.URL = nc.ConnectedUrl() }
}
