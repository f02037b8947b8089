package main

import (
	"context"
	"flag"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
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
	t              testing.TB
	nc             *nats.Conn
	args           []string
	writer, behind *program
	towns          *hammer
	clients        sync.WaitGroup
	stop           context.CancelFunc
}

func newPair(t *testing.T) *pair {
	t.Helper()
	nc := natstest.Connect(t)
	p := &pair{t: t, nc: nc, args: []string{"--nats", nc.ConnectedUrl(), "--http", "127.0.0.1:0",
		"--history-per-town", "10000000"}, // no answer is forgotten in a long run
		towns: newHammer(t, 4)}
	p.writer = launch(t, nil, p.args...)
	p.standBy()
	p.towns.create(nc)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(t.Context())
	for _, d := range p.towns.towns {
		p.clients.Go(func() { p.drive(ctx, d) })
	}
	t.Cleanup(func() { p.stop(); p.clients.Wait() })
	return p
}

// standBy starts the second server.
func (p *pair) standBy() {
	p.t.Helper()
	p.behind = spawn(p.t, nil, p.args...)
	p.behind.await("standby", 30*time.Second)
}

// drive sends one handoff of a town after another, each again with its key until it is answered.
func (p *pair) drive(ctx context.Context, d *driven) {
	for ctx.Err() == nil {
		if d.open == nil {
			d.open = d.next(p.t)
		}
		reply, err := p.nc.Request(wire.Subject("main", "handoff"), d.open, 500*time.Millisecond)
		if err != nil || reply.Header.Get(wire.ErrorCodeHeader) == "503" {
			select {
			case <-time.After(10 * time.Millisecond): // as a client does between two tries
			case <-ctx.Done():
			}
			continue
		}
		if !p.towns.take(d, reply.Data) {
			return
		}
	}
}

// answered waits until there are some more answers than now, and returns how long that took.
func (p *pair) answered(more int, within time.Duration) time.Duration {
	p.t.Helper()
	began, before := time.Now(), p.towns.answers()
	for p.towns.answers() < before+more {
		require.Less(p.t, time.Since(began), within, "%s\n%s", p.writer.stderr, p.behind.stderr)
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// verify ends the load, and holds the world against the model.
func (p *pair) verify() {
	p.t.Helper()
	p.answered(2*len(p.towns.towns), 30*time.Second)
	p.stop()
	p.clients.Wait()
	p.towns.verify(p.nc)
	requireSound(p.t, p.nc)
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
			p.answered(100, time.Minute)
			ended := time.Now()
			p.writer.end(end.signal)
			drained := time.Since(ended)
			p.behind.await("ready", end.within)
			ready := time.Since(ended) - drained
			gap := p.answered(len(p.towns.towns), end.within)
			t.Logf("%s: ended after %s, ready %s later, answers %s later", end.signal,
				drained.Round(time.Millisecond), ready.Round(time.Millisecond),
				gap.Round(time.Millisecond))
			require.Less(t, ready+gap, end.within)
			p.writer = p.behind
			p.standBy()
		}
	}
	p.verify()
}

// A writer that is suspended for longer than the lease stands by when it goes on: it does no harm.
func TestStandby_WriterIsSuspended(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.answered(100, time.Minute)
	began := time.Now()
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGSTOP))
	p.behind.await("ready", afterKill)
	t.Logf("ready %s after SIGSTOP", time.Since(began).Round(time.Millisecond))
	p.answered(100, afterKill)
	time.Sleep(*suspended - time.Since(began)) // the suspension itself
	p.answered(len(p.towns.towns), afterKill)
	require.NoError(t, p.writer.cmd.Process.Signal(syscall.SIGCONT))
	p.writer.await("standby", 5*time.Second)
	p.answered(100, 10*time.Second)

	p.behind.end(syscall.SIGTERM)
	p.writer.await("ready", 5*time.Second)
	p.verify()
}

// Of two servers that start at once one serves and the other stands by. Its /readyz keeps requests
// away, and its /livez a restart.
func TestStandby_TwoStartAtOnce(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	args := []string{"--nats", nc.ConnectedUrl(), "--http", "127.0.0.1:0"}
	both := []*program{spawn(t, nil, args...), spawn(t, nil, args...)}
	states := map[string]*program{}
	for _, p := range both {
		select {
		case state := <-p.states:
			states[state] = p
		case <-time.After(30 * time.Second):
			require.Fail(t, "no state", "%s", p.stderr)
		}
	}
	require.Len(t, states, 2)
	for state, want := range map[string]string{"ready": "ok\n",
		"standby": "not ready: standby: another server serves the world\n"} {
		p := states[state]
		status, text := p.ask(t, "readyz")
		require.Equal(t, state == "ready", status == http.StatusOK, text)
		require.Equal(t, want, text)
		status, _ = p.ask(t, "livez")
		require.Equal(t, http.StatusOK, status)
	}
	_, text := states["standby"].ask(t, "metrics")
	require.Contains(t, text, "handoffd_writer 0\n")
	require.NotContains(t, text, "handoffd_requests_waiting")
	states["ready"].end(syscall.SIGTERM)
	states["standby"].await("ready", afterStop)
	status, text := states["standby"].ask(t, "readyz")
	require.Equal(t, http.StatusOK, status, text)
}

// httpAddress is in the line of the console, also if that is off.
var httpAddress = regexp.MustCompile(`http://\S+`)

// ask asks over HTTP.
func (p *program) ask(t *testing.T, path string) (status int, text string) {
	t.Helper()
	var console string
	for _, line := range p.said {
		if url, found := strings.CutPrefix(line, "console "); found {
			console = httpAddress.FindString(url)
		}
	}
	answer, err := http.Get(strings.TrimSuffix(console, "/") + "/" + path)
	require.NoError(t, err, "%s", p.said)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}
