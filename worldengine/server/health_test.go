package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// knownWorld answers as a test says.
type knownWorld struct {
	log, room, lost error
	asked           int
	indexed, end    uint64
}

func (w *knownWorld) Reach(context.Context) error { w.asked++; return w.log }
func (w *knownWorld) MayStore() error             { return w.room }
func (w *knownWorld) LogLost() error              { return w.lost }
func (w *knownWorld) IndexProgress() (indexed, end uint64) {
	return w.indexed, w.end
}

// A server is ready as long as its log has answered lately, so that an election of a leader does
// not take all servers of a cluster out of service; a full disk and the end do at once.
func TestReady(t *testing.T) {
	t.Parallel()
	away, full := errors.New("no leader"), errors.New("the disk is full")
	now := time.Unix(1_700_000_000, 0)
	h, w := newHealth(), &knownWorld{}
	h.now = func() time.Time { return now }
	ready := func() error { return h.check(t.Context(), w) }

	require.NoError(t, ready())
	require.NoError(t, ready())
	require.Equal(t, 1, w.asked, "many questions at once are one to the log")
	w.log = away
	now = now.Add(time.Hour) // nobody has asked since
	require.NoError(t, ready(), "one question without an answer")
	for range 14 {
		now = now.Add(time.Second)
		require.NoError(t, ready(), "an election")
	}
	now = now.Add(time.Second)
	require.ErrorIs(t, ready(), away)
	w.log = nil
	now = now.Add(time.Second)
	require.NoError(t, ready())
	w.room = full
	require.ErrorIs(t, ready(), full)
	w.room = nil
	require.NoError(t, ready())
	w.lost = commitlog.ErrLogLost
	require.ErrorIs(t, ready(), commitlog.ErrLogLost)
	w.lost = nil
	w.indexed, w.end = 1200, 50_000
	require.ErrorContains(t, ready(), "the index is being built: it is at log sequence 1200 of 50000")
	w.end = 0
	require.NoError(t, ready())
	h.draining.Store(true)
	require.ErrorIs(t, ready(), errDraining)
}

// A server whose log has never answered is not ready.
func TestNotReadyBeforeTheLogHasAnswered(t *testing.T) {
	t.Parallel()
	h, w := newHealth(), &knownWorld{log: errors.New("no answer")}
	require.ErrorIs(t, h.check(t.Context(), w), w.log)
}

// The metrics of a real server have what its parts count.
func TestMetricsOfAServer(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Config{
		Listen: "127.0.0.1:0", Data: t.TempDir(), Sync: SyncInterval, HTTP: "127.0.0.1:0",
		Logger: quietLogger(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, srv.Close(ctx))
	})
	nc, err := nats.Connect(srv.URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	for verb, body := range map[wire.Verb]string{wire.TownGet: `{"townId":"nowhere"}`,
		wire.TownList: `{}`, wire.Handoff: `{}`} {
		_, err = nc.Request(wire.Subject(wire.DefaultWorld, verb), []byte(body), 30*time.Second)
		require.NoError(t, err)
	}
	body := scrape(t, srv)
	for _, line := range []string{
		`handoffd_requests_total{code="UNKNOWN_TOWN",verb="town.get"} 1`,
		`handoffd_requests_total{code="OK",verb="town.list"} 1`,
		`handoffd_requests_total{code="SCHEMA_VALIDATION_FAILED",verb="handoff"} 1`,
		`handoffd_request_duration_seconds_count{verb="town.list"} 1`,
		`handoffd_stream_messages{stream="LOG"} 0`,
		`handoffd_storage_full 0`, `handoffd_world_paused 0`,
	} {
		require.Contains(t, body, line+"\n")
	}
	require.Regexp(t, `handoffd_disk_free_bytes [1-9]`, body)
	require.Regexp(t, `handoffd_nats_connections [1-9]`, body)
}

// scrape returns the metrics of a server.
func scrape(t *testing.T, srv *Server) string {
	t.Helper()
	answer, err := http.Get(strings.TrimSuffix(srv.HTTP(), "/") + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}
