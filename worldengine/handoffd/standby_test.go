package handoffd

import (
	"flag"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

var (
	takeovers = flag.Int("standby.rounds", 1, "how often a writer is killed, and stopped, to measure")
	suspended = flag.Duration("standby.suspended", 4*time.Second, "how long a writer is suspended")
)

// pair are two servers of a world on one NATS under the load of some towns.
type pair struct {
	*hammer
	nc             *nats.Conn
	args           []string
	writer, behind *program
}

func newPair(t *testing.T) *pair {
	t.Helper()
	nc := natstest.Connect(t)
	p := &pair{hammer: newHammer(t, 4, ""), nc: nc, args: []string{"--nats", nc.ConnectedUrl(),
		"--history-per-town", "10000000"}} // no answer is forgotten in a long run
	p.patience = 500 * time.Millisecond
	p.writer = launch(t, nil, p.args...)
	p.standBy()
	p.create(nc)
	p.start()
	return p
}

// standBy starts the second server.
func (p *pair) standBy() {
	p.t.Helper()
	p.behind = spawn(p.t, nil, p.args...)
	p.behind.await("standby")
}

// finish ends the load, and holds the world against the model.
func (p *pair) finish() {
	p.t.Helper()
	p.waitMore(2 * len(p.towns))
	p.end()
	p.verify(p.nc, 0)
}

// The server that stands by takes over from one that is killed, and from one that is stopped, which
// releases the lease: no answer is lost, and nothing is executed twice. The times are logged; no
// bound holds on a machine that is busy enough.
func TestStandby_TakesOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	js, err := jetstream.New(p.nc)
	require.NoError(t, err)
	bucket, err := js.KeyValue(t.Context(), layout.WriterBucket(wire.DefaultWorld))
	require.NoError(t, err)
	lease, err := bucket.WatchAll(t.Context(), jetstream.UpdatesOnly())
	require.NoError(t, err)
	for range *takeovers {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			p.waitMore(100)
			ended := time.Now()
			p.writer.end(signal)
			drained := time.Since(ended)
			p.behind.await("ready")
			ready := time.Since(ended) - drained
			gap := p.waitMore(len(p.towns))
			t.Logf("%s: ended after %s, ready %s later, answers %s later", signal,
				drained.Round(time.Millisecond), ready.Round(time.Millisecond),
				gap.Round(time.Millisecond))
			if signal == syscall.SIGKILL {
				require.False(t, givenBack(lease))
			} else { // the mark of the deletion may be on its way
				require.Eventually(t, func() bool { return givenBack(lease) }, time.Minute, 10*time.Millisecond)
			}
			p.writer = p.behind
			p.standBy()
		}
	}
	p.finish()
}

// givenBack reports whether the lease was released since it was last asked: one that ended by
// itself leaves no mark of its deletion.
func givenBack(lease jetstream.KeyWatcher) bool {
	deleted := false
	for {
		select {
		case entry := <-lease.Updates():
			deleted = deleted || entry.Operation() == jetstream.KeyValueDelete
		default:
			return deleted
		}
	}
}

// A writer that is suspended for longer than the lease stands by when it goes on: it does no harm.
func TestStandby_WriterIsSuspended(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.waitMore(100)
	began := time.Now()
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGSTOP))
	p.behind.await("ready")
	t.Logf("ready %s after SIGSTOP", time.Since(began).Round(time.Millisecond))
	p.waitMore(100)
	time.Sleep(*suspended - time.Since(began)) // the suspension itself
	p.waitMore(len(p.towns))
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGCONT))
	p.writer.await("standby")
	p.waitMore(100)

	p.behind.end(syscall.SIGTERM)
	p.writer.await("ready")
	p.finish()
}

// Of two servers that start at once one serves and the other stands by. Its /readyz keeps requests
// away, and its /livez a restart.
func TestStandby_TwoStartAtOnce(t *testing.T) {
	t.Parallel()
	args := []string{"--nats", natstest.Connect(t).ConnectedUrl(), "--http", "127.0.0.1:0"}
	writer, behind := spawn(t, nil, args...), spawn(t, nil, args...)
	require.Eventually(t, func() bool {
		return writer.state.Load() != nil && behind.state.Load() != nil
	}, time.Minute, 10*time.Millisecond, "%s\n%s", writer.stderr, behind.stderr)
	if behind.is("ready") {
		writer, behind = behind, writer
	}
	require.True(t, writer.is("ready") && behind.is("standby"))
	status, text := behind.get(t, "readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "not ready: standby: another server serves the world\n", text)
	status, _ = behind.get(t, "livez")
	require.Equal(t, http.StatusOK, status)
	_, text = behind.get(t, "metrics")
	require.Contains(t, text, `handoffd_writer{world="main"} 0`)
	require.NotContains(t, text, "handoffd_requests_waiting")
	writer.end(syscall.SIGTERM)
	behind.await("ready")
	status, text = behind.get(t, "readyz")
	require.Equal(t, http.StatusOK, status, text)
}
