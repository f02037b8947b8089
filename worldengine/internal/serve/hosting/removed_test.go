package hosting

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
)

// hostAll returns the worlds of a server of every world, which has no parts that serve them yet.
func hostAll(t *testing.T, nc *nats.Conn) *Worlds {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	ws, err := New(&Config{All: true, Backlogs: new(Backlogs)}, &Shared{
		ServiceConfig: service.Config{Logger: slog.New(slog.DiscardHandler)},
		Conn:          nc, ReadConn: nc, JetStream: js, Explain: func(err error) error { return err },
	})
	require.NoError(t, err)
	return ws
}

// A world that another server removes after this one has listed it is not made anew, and may be created again.
func TestWorlds_RemovedSinceListed(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	ws := hostAll(t, nc)
	w, err := ws.host("removed", worldsettings.Settings{}, false)
	require.NoError(t, err)
	select {
	case <-w.firstStart:
	case <-time.After(time.Minute):
		t.Fatal("the world is still being started")
	}
	require.ErrorIs(t, w.state.Load().unserved, errRemoved)
	_, err = ws.shared.JetStream.Stream(t.Context(), layout.LogStream("removed"))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)

	require.NoError(t, ws.requireNew(t.Context(), "removed"))
	require.Nil(t, ws.get("removed"))
	isMade, err := newWorld(ws, "made")
	require.NoError(t, err)
	require.NoError(t, ws.add(isMade))
	require.ErrorIs(t, ws.requireNew(t.Context(), "made"), service.ErrWorldExists, "another request makes it")
	ws.drop(isMade)
}

// While one server removes a world, the lists of the others say so, and give no remedy for a world that is not served.
func TestWorlds_RemovedByAnother(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	remover, other := hostAll(t, nc), hostAll(t, nc)
	for id, ws := range map[string]*Worlds{"remover": remover, "other": other} {
		ws.shared.Joinable, ws.shared.ServiceConfig.ID = true, id
		ws.shared.Grant = func(func() []string) error { return nil }
		require.NoError(t, ws.startPlacer(nil))
		t.Cleanup(ws.placer.Close)
	}
	listed := func(text string) func() bool {
		return func() bool {
			_, why := other.whyUnserved("old", nats.ErrNoResponders)
			return strings.Contains(why, text)
		}
	}
	require.NoError(t, remover.removeOnce("old", func() error {
		require.Eventually(t, listed(errRemoving.Error()), time.Minute, time.Millisecond)
		return nil
	}))
	require.Eventually(t, listed("no server serves it"), time.Minute, time.Millisecond)
}

// A server that has lost the lease by the time it has answered the requests of a world deletes nothing of it, and
// stands by for it again.
func TestWorlds_RemoveWithoutLease(t *testing.T) {
	t.Parallel()
	ws := hostAll(t, natstest.Connect(t))
	ws.shared.Joinable, ws.shared.ServiceConfig.ID = true, "remover"
	ws.shared.Grant = func(func() []string) error { return nil }
	require.NoError(t, ws.startPlacer(nil))
	t.Cleanup(ws.placer.Close)
	kept, js := layout.AlertStream("old"), ws.shared.JetStream
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: kept})
	require.NoError(t, err)
	w, err := newWorld(ws, "old") // which has no tenure any more
	require.NoError(t, err)
	require.NoError(t, ws.add(w))
	ctx, cancel := context.WithTimeout(t.Context(), changeTimeout)
	defer cancel()
	require.ErrorIs(t, w.removeServed(ctx, true), errOvertaken)
	_, err = js.Stream(t.Context(), kept)
	require.NoError(t, err)
	again := ws.get("old")
	require.NotNil(t, again)
	require.NotSame(t, w, again)
	ws.drop(again)
}

// A server that is stopping makes no world of another server's request, and does not say that there is one.
func TestWorlds_CreateWhileStopping(t *testing.T) {
	t.Parallel()
	ws := hostAll(t, natstest.Connect(t))
	ws.stop()
	_, err := ws.createHere(t.Context(), messages.WorldsCreate{World: "new"})
	require.ErrorIs(t, err, service.ErrWorldNotServed)
	require.NotErrorIs(t, err, service.ErrWorldExists)
	require.ErrorContains(t, err, "the server is stopping; try again")
	require.Nil(t, ws.get("new"))
}

// listing calls a function while it lists no streams.
type listing struct {
	jetstream.JetStream
	meanwhile func()
}

func (l listing) StreamNames(context.Context, ...jetstream.StreamListOpt) jetstream.StreamNameLister {
	l.meanwhile()
	return l
}

func (listing) Name() <-chan string {
	none := make(chan string)
	close(none)
	return none
}

func (listing) Err() error { return nil }

// A world that is made while a look lists the logs is not taken for removed.
func TestWorlds_MadeSinceListed(t *testing.T) {
	t.Parallel()
	ws := hostAll(t, natstest.Connect(t))
	ws.shared.Grant = func(func() []string) error { return nil }
	made, err := newWorld(ws, "made")
	require.NoError(t, err)
	ws.shared.JetStream = listing{ws.shared.JetStream, func() {
		require.NoError(t, ws.add(made))
		made.logSeen.Store(true)
	}}
	require.NoError(t, ws.findWorlds(t.Context()))
	require.Same(t, made, ws.get("made"))
	ws.drop(made)
}
