package hosting

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/service"
)

// With access control nobody learns from the readiness of a server how many worlds there are, or their names.
func TestWorlds_ReadyzHidesOthers(t *testing.T) {
	t.Parallel()
	ws, err := New(&Config{All: true}, &Shared{ServiceConfig: service.Config{Access: access.NewDirectory(nil)}})
	require.NoError(t, err)
	ask := func(path string) string {
		w := httptest.NewRecorder()
		ws.Readyz(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	add := func(world string, why error) {
		w := &World{worlds: ws, name: world}
		w.state.Store(&state{unserved: why})
		require.NoError(t, ws.add(w))
	}
	add("hidden", errors.New("the log of hidden is damaged"))
	require.Equal(t, "not ready: none of the worlds is served: handoffctl world list says why\n", ask("/readyz"))
	require.Equal(t, ask("/readyz?world=unknown"), ask("/readyz?world=hidden"))
	add("own", errStandby)
	require.Equal(t, "ok\n", ask("/readyz"))
}

// Until a removal is done, the readiness and the list of worlds say so: a removal waits for unanswered requests.
func TestWorlds_BeingRemoved(t *testing.T) {
	t.Parallel()
	grant := func(func() []string) error { return nil }
	ws, err := New(&Config{Names: []string{"old"}}, &Shared{Grant: grant})
	require.NoError(t, err)
	require.True(t, ws.forget(ws.get("old")))
	require.NoError(t, ws.removeOnce("old", func() error {
		for _, err := range []error{ws.Ready(), ws.ReadyOf("old"), ws.Unserved("old")} {
			require.ErrorIs(t, err, errRemoving)
		}
		_, why := ws.whyUnserved("old", nats.ErrNoResponders)
		require.Equal(t, errRemoving.Error(), why)
		require.ErrorIs(t, ws.removeOnce("old", nil), service.ErrWorldNotServed)
		return nil
	}))
	require.Equal(t, errRemoved, ws.Ready())
	require.Equal(t, errNotHosted, ws.ReadyOf("old"))
	_, why := ws.whyUnserved("old", nats.ErrNoResponders)
	require.Contains(t, why, "start handoffd with --world old")
}

// A server is ready until its log has been silent for 15 s.
func TestWorld_SilentLog(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkSilence(silenceTimeout-time.Millisecond))
	require.EqualError(t, checkSilence(15*time.Second), "the log has not answered for 15s")
}
