package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/serve/access"
)

// With access control nobody learns from the readiness of a server how many worlds there are, or their names.
func TestReadyz_OtherWorlds(t *testing.T) {
	t.Parallel()
	s := &Server{config: Config{Worlds: Worlds{All: true}, Access: &access.Config{}}}
	ask := func(path string) string {
		w := httptest.NewRecorder()
		s.readyz(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Body.String()
	}
	add := func(world string, idle error) {
		h := &hosted{world: world}
		h.idle.Store(&idle)
		require.True(t, s.worlds.add(h))
	}
	add("hidden", errors.New("the log of hidden is damaged"))
	require.Equal(t, "not ready: none of the worlds is served: handoffctl world list says why\n", ask("/readyz"))
	require.Equal(t, ask("/readyz?world=unknown"), ask("/readyz?world=hidden"))
	add("own", errStandby)
	require.Equal(t, "ok\n", ask("/readyz"))
}

// A world that is removed while it begins leaves nothing in the placer: nobody else would remove it.
func TestPlacer_RemovedWhileItBegins(t *testing.T) {
	t.Parallel()
	s, h := &Server{}, &hosted{world: "gone"}
	p := &placer{server: s, view: placement.New(0, placement.Announcement{ID: "self"}), changes: make(chan struct{}, 1),
		failed: map[string]*failure{}, why: map[string]string{}}
	s.placer = p
	require.True(t, s.worlds.add(h))
	p.add()
	require.Len(t, p.view.Decide(p.now()), 1)
	s.forget(h)
	p.add()
	p.tried(h.world, errors.New("it could not be served"))
	require.Empty(t, p.view.Decide(p.now()))
	require.Empty(t, p.self.Worlds)
	require.Empty(t, p.self.Failed)
}

// A server is ready until its log has been silent for 15 s.
func TestLogHeard(t *testing.T) {
	t.Parallel()
	require.NoError(t, logHeard(logAway-time.Millisecond))
	require.EqualError(t, logHeard(15*time.Second), "the log has not answered for 15s")
}
