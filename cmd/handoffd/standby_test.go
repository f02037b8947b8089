package main

import (
	"flag"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
)

var (
	takeovers = flag.Int("standby.rounds", 1, "how often a writer is killed, and stopped, to measure")
	suspended = flag.Duration("standby.suspended", 6*time.Second, "how long a writer is suspended")
)

// Bounds of a takeover.
const (
	afterKill = 5 * time.Second
	afterStop = 1500 * time.Millisecond
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
	p := &pair{hammer: newHammer(t, 4), nc: nc, args: []string{"--nats", nc.ConnectedUrl(),
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
	p.behind.await("standby", 30*time.Second)
}

// finish ends the load, and holds the world against the model.
func (p *pair) finish() {
	p.t.Helper()
	p.waitMore(2*len(p.towns), 30*time.Second)
	p.end()
	p.verify(p.nc, 0)
}

// The server that stands by takes over from one that is killed, and from one that is stopped: no
// answer is lost, and nothing is executed twice.
func TestStandby_TakesOver(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	for range *takeovers {
		for _, end := range []struct {
			signal syscall.Signal
			within time.Duration
		}{{syscall.SIGKILL, afterKill}, {syscall.SIGTERM, afterStop}} {
			p.waitMore(100, time.Minute)
			ended := time.Now()
			p.writer.end(end.signal)
			drained := time.Since(ended)
			p.behind.await("ready", end.within)
			ready := time.Since(ended) - drained
			gap := p.waitMore(len(p.towns), end.within)
			t.Logf("%s: ended after %s, ready %s later, answers %s later", end.signal,
				drained.Round(time.Millisecond), ready.Round(time.Millisecond),
				gap.Round(time.Millisecond))
			require.Less(t, ready+gap, end.within)
			p.writer = p.behind
			p.standBy()
		}
	}
	p.finish()
}

// A writer that is suspended for longer than the lease stands by when it goes on: it does no harm.
func TestStandby_WriterIsSuspended(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.waitMore(100, time.Minute)
	began := time.Now()
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGSTOP))
	p.behind.await("ready", afterKill)
	t.Logf("ready %s after SIGSTOP", time.Since(began).Round(time.Millisecond))
	p.waitMore(100, afterKill)
	time.Sleep(*suspended - time.Since(began)) // the suspension itself
	p.waitMore(len(p.towns), afterKill)
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGCONT))
	p.writer.await("standby", 5*time.Second)
	p.waitMore(100, 10*time.Second)

	p.behind.end(syscall.SIGTERM)
	p.writer.await("ready", 5*time.Second)
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
	}, 30*time.Second, 10*time.Millisecond, "%s\n%s", writer.stderr, behind.stderr)
	if behind.is("ready") {
		writer, behind = behind, writer
	}
	require.True(t, writer.is("ready") && behind.is("standby"))
	for p, want := range map[*program]string{writer: "ok\n",
		behind: "not ready: standby: another server serves the world\n"} {
		status, text := p.get(t, "readyz")
		require.Equal(t, p == writer, status == http.StatusOK, text)
		require.Equal(t, want, text)
		status, _ = p.get(t, "livez")
		require.Equal(t, http.StatusOK, status)
	}
	_, text := behind.get(t, "metrics")
	require.Contains(t, text, "handoffd_writer 0\n")
	require.NotContains(t, text, "handoffd_requests_waiting")
	writer.end(syscall.SIGTERM)
	behind.await("ready", afterStop)
	status, text := behind.get(t, "readyz")
	require.Equal(t, http.StatusOK, status, text)
}
