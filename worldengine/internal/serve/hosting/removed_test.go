package hosting

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
)

// A world that another server removes after this one has listed it is not made anew, and may be created again.
func TestWorlds_RemovedSinceListed(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	ws := New(&Config{All: true, Backlogs: new(Backlogs)}, &Shared{
		Engine: &engine.Config{}, Service: &service.Config{Logger: slog.New(slog.DiscardHandler)},
		Conn: nc, ReadConn: nc, JetStream: js, Explain: func(err error) error { return err },
	})
	w, err := ws.host("removed", worldsettings.Settings{}, false)
	require.NoError(t, err)
	select {
	case <-w.decided:
	case <-time.After(time.Minute):
		t.Fatal("the world is still being started")
	}
	require.ErrorIs(t, w.state.Load().unserved, errRemoved)
	_, err = js.Stream(t.Context(), layout.LogStream("removed"))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)

	require.NoError(t, ws.requireNew(t.Context(), "removed"))
	require.Nil(t, ws.get("removed"))
	isMade, err := newWorld(ws, "made")
	require.NoError(t, err)
	require.True(t, ws.add(isMade))
	require.ErrorIs(t, ws.requireNew(t.Context(), "made"), service.ErrWorldExists, "another request makes it")
	ws.drop(isMade)
}
