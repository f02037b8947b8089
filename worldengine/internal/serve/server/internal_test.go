package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/testkit/natstest"
)

// Text of clients does not make another kind.
func TestNATSLogger_Kinds(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for i := range 100 {
		for _, line := range []string{
			`"v1.%[1]d:go:name" - "CLIENTS/user" - Publish Violation - User "u%[1]d", Subject "s.%[1]d"`,
			`"v1.%[1]d:go:name" - maximum payload exceeded: %[1]d vs 1`,
			`authentication error - User "u%[1]d"`,
		} {
			kinds[kindOf(fmt.Sprintf("127.0.0.1:%[1]d - cid:%[1]d - "+line, i))] = true
		}
	}
	require.Len(t, kinds, 3, "%v", kinds)
}

// A restore syncs every file and directory of its data directory, even if that is a symbolic link.
func TestSyncTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	require.NoError(t, os.MkdirAll(filepath.Join(data, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "sub", "file"), nil, 0o600))
	require.NoError(t, os.Symlink(data, link))
	for _, at := range []string{data, link} {
		var synced []string
		require.NoError(t, syncTree(at, func(path string) error {
			synced = append(synced, filepath.Base(path))
			return nil
		}))
		require.Equal(t, []string{"data", "sub", "file"}, synced)
	}
}

// A line about a failed write is told from one in which a client says the same.
func TestNATSLogger_FailedWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Filestore [WORLD_main_LOG] Critical write error: no space left on device":                   true,
		"JetStream failed to store a msg on stream '$G > WORLD_main_LOG': no space left":             true,
		"JetStream out of file resources, will be DISABLED":                                          true,
		`127.0.0.1:4 - cid:4 - Client parser ERROR, proto='"Filestore [x] Critical write error"...'`: false,
		"Filestore [WORLD_main_LOG] Resource not found":                                              false,
	} {
		said := ""
		l := newNATSLogger(slog.New(slog.DiscardHandler), nil, func(why string) { said = why })
		l.Errorf("%s", text)
		require.Equal(t, want, said == text, text)
	}
}

// A client that leaves while NATS registers it is no error.
func TestNATSLogger_ClientLeft(t *testing.T) {
	t.Parallel()
	for why, level := range map[string]string{
		"connection closed": "DEBUG", "maximum account active connections exceeded": "ERROR",
	} {
		log := &natstest.Buffer{}
		options := &slog.HandlerOptions{Level: slog.LevelDebug}
		newNATSLogger(slog.New(slog.NewTextHandler(log, options)), nil, nil).
			Errorf(`127.0.0.1:4 - cid:4 - Problem registering with account %q: %s`, "$G", why)
		require.Contains(t, log.String(), "level="+level)
	}
}

// A warning about an index that NATS rebuilds says so.
func TestNATSLogger_Rebuilt(t *testing.T) {
	t.Parallel()
	for warning, rebuilt := range map[string]bool{
		"Filestore [LOG] Recovering stream state from index errored: %v":                          true,
		"Filestore [LOG] TTL state is outdated; attempting to recover using linear scan (seq %d)": true,
		"Filestore [LOG] Error loading msg block with seq %d for recovering per-message state":    false,
	} {
		log := &natstest.Buffer{}
		newNATSLogger(slog.New(slog.NewTextHandler(log, nil)), nil, nil).Warnf(warning, 7)
		require.Equal(t, rebuilt, strings.Contains(log.String(), "NATS rebuilds it"), warning)
	}
}

// With access control nobody learns from the readiness of a server how many worlds there are, or their names.
func TestReadyz_OtherWorlds(t *testing.T) {
	t.Parallel()
	s := &Server{config: Config{AllWorlds: true, Access: &access.Config{}}}
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
