package main

import (
	"flag"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
)

var tortureSlow = flag.Int("torture.slow", 0,
	"how many rounds of trouble TestSlowNATS and TestStopped make; 0 for one "+
		"without the troubles that last longer than a whole request may take")

// mostTrouble is how long a trouble may last if -torture.slow is 0.
const mostTrouble = 5 * time.Second

// longestCalm is how long the towns are driven at most between two troubles, as fast as the server
// answers.
func longestCalm() time.Duration {
	if *tortureSlow == 0 {
		return 200 * time.Millisecond
	}
	return time.Second
}

// trouble is something that makes a server slow for a while.
type trouble struct {
	name  string
	lasts time.Duration
	begin func()
}

// suffer has the towns driven while one trouble comes after another, in an order that the seed
// draws, and checks that each is answered again when the last has ended.
func (r *torture) suffer(p *program, nc *nats.Conn, troubles []trouble, end func()) {
	r.t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1))
	if *tortureSlow == 0 {
		troubles = slices.DeleteFunc(troubles,
			func(t trouble) bool { return t.lasts > mostTrouble })
	}
	for _, trouble := range troubles { // and a second after each
		r.patience += trouble.lasts + time.Second
	}
	for range max(*tortureSlow, 1) {
		random.Shuffle(len(troubles), func(i, j int) {
			troubles[i], troubles[j] = troubles[j], troubles[i]
		})
		var over atomic.Bool
		go func() {
			defer over.Store(true)
			for _, trouble := range troubles {
				trouble.begin()
				time.Sleep(trouble.lasts) // the trouble itself
				end()
				time.Sleep(time.Duration(random.Int64N(int64(longestCalm()))))
				r.kills[trouble.name]++
			}
		}()
		r.work(p, nc, func(d *torturedTown) bool { return !over.Load() || d.open != nil })
	}
}

// A NATS that is far away, has a thin line, or says nothing for longer than an append (3 s) and,
// with -torture.slow, than a whole request (10 s) may take, loses nothing, has nothing carried out
// twice, and is served again when it comes back. Only the line of the server is slow; the clients
// and the game have another.
//
// The line loses no byte, so each append is stored in the end. That an append without an
// answer was not stored, and that its guard keeps out a second one, is shown by the tests of
// package commitlog.
func TestSlowNATS(t *testing.T) {
	t.Parallel()
	for _, apply := range []string{"local", "plugin"} {
		t.Run(apply, func(t *testing.T) {
			t.Parallel()
			r, nc := newTorture(t, apply), natstest.Connect(t)
			at, err := url.Parse(nc.ConnectedUrl())
			require.NoError(t, err)
			line := natstest.NewProxy(t, at.Host)
			flags := r.args[4:]
			r.args = append([]string{"--nats", "nats://" + line.Address()}, flags...)
			p, _ := r.serve(nil, "")
			r.game.play(t, nc)
			cut := func() { line.Cut(true) }
			r.suffer(p, nc, []trouble{
				{"delayed by 50 ms", time.Second, func() { line.Slow(50*time.Millisecond, 0) }},
				{"delayed by 500 ms", 2 * time.Second,
					func() { line.Slow(500*time.Millisecond, 0) }},
				{"16 KB/s", 3 * time.Second, func() { line.Slow(0, 16<<10) }},
				{"silent for 4 s", 4 * time.Second, cut},
				{"silent for 12 s", 12 * time.Second, cut},
			}, func() { line.Slow(0, 0); line.Cut(false) })
			p.stop()
			r.args = append([]string{"--nats", nc.ConnectedUrl()}, flags...)
			r.game.leave(t, nc) // verify has another connection for it
			r.verify()
			r.report()
		})
	}
}

// A server that is stopped for seconds, and goes on, loses nothing and has nothing carried out
// twice.
func TestStopped(t *testing.T) {
	t.Parallel()
	for _, apply := range []string{"local", "plugin"} {
		t.Run(apply, func(t *testing.T) {
			t.Parallel()
			r := newTorture(t, apply)
			p, nc := r.serve(nil, "always")
			stop := func() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
			r.suffer(p, nc, []trouble{
				{"stopped for 1 s", time.Second, stop}, {"stopped for 4 s", 4 * time.Second, stop},
				{"stopped for 12 s", 12 * time.Second, stop},
			}, func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) })
			nc.Close()
			p.stop()
			r.verify()
			r.report()
		})
	}
}
