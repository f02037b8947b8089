package cluster_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backup"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// A world moves from one machine to a cluster, and from a cluster that is under load to one
// machine: each time what was answered before the backup is there, and clients go on.
func TestRestoreToAClusterAndBack(t *testing.T) {
	long(t)
	one := natstest.Connect(t)
	stop := serveAlone(t, one)
	h := newHammer(t, []*nats.Conn{one, one, one}, 12, "local")
	h.start()
	h.waitAnswers(20, everywhere...)
	h.verify(one, 0)
	toCluster := takeBackup(t, one)
	stop()

	w := &world{nodes: startNodes(t)}
	first := w.connect(w.nodes.urls(0))
	_, err := backup.Restore(t.Context(), first, toCluster, backup.RestoreOptions{Replicas: size})
	require.NoError(t, err)
	w.startEngines(false)
	h.moveTo(w.clients)
	h.verify(w.clients[1], 0)

	h.start()
	h.waitAnswers(20, everywhere...)
	before := h.answered()
	toOne := takeBackup(t, w.clients[0])
	h.waitAnswers(5, everywhere...)
	h.end()

	again := natstest.Connect(t)
	_, err = backup.Restore(t.Context(), again, toOne, backup.RestoreOptions{})
	require.NoError(t, err)
	serveAlone(t, again)
	for key, bytes := range before {
		var kept struct{ Result json.RawMessage }
		ask(t, again, "result.get", map[string]string{"idempotencyKey": key}, &kept)
		require.Equal(t, bytes, string(kept.Result), "an answer was lost")
	}
	report, err := fsck.Run(t.Context(), again, wire.DefaultWorld, fsck.Options{})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// serveAlone serves a world in an unreplicated NATS until the test, or stop, ends it.
func serveAlone(t testing.TB, nc *nats.Conn) (stop func()) {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Config{
		NATS: nc.ConnectedUrl(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	running := true
	stop = func() {
		if running {
			running = false
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			require.NoError(t, srv.Close(ctx))
		}
	}
	t.Cleanup(stop)
	return stop
}

func takeBackup(t testing.TB, nc *nats.Conn) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	_, err := backup.Take(t.Context(), nc, dir, backup.Options{})
	require.NoError(t, err)
	return dir
}

// moveTo gives every town a client of somebody else; nobody is at work.
func (h *hammer) moveTo(clients []*nats.Conn) {
	for _, d := range h.towns {
		d.nc = clients[d.home%len(clients)]
	}
}

// answered returns the results that clients have had so far, by key.
func (h *hammer) answered() map[string]string {
	all := map[string]string{}
	for _, d := range h.towns {
		d.mu.Lock()
		for _, a := range d.answered {
			if a.bytes != "" {
				all[a.key] = a.bytes
			}
		}
		d.mu.Unlock()
	}
	return all
}
