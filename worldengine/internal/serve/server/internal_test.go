package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	add := func(world string, why error) {
		h := &hosted{world: world}
		h.unserved.Store(&why)
		require.True(t, s.worlds.add(h))
	}
	add("hidden", errors.New("the log of hidden is damaged"))
	require.Equal(t, "not ready: none of the worlds is served: handoffctl world list says why\n", ask("/readyz"))
	require.Equal(t, ask("/readyz?world=unknown"), ask("/readyz?world=hidden"))
	add("own", errStandby)
	require.Equal(t, "ok\n", ask("/readyz"))
}

// A server is ready until its log has been silent for 15 s.
func TestLogHeard(t *testing.T) {
	t.Parallel()
	require.NoError(t, logHeard(silenceTimeout-time.Millisecond))
	require.EqualError(t, logHeard(15*time.Second), "the log has not answered for 15s")
}
