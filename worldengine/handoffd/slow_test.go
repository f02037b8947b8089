package handoffd

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

var tortureSlow = flag.Int("torture.slow", 0,
	"how many rounds of trouble TestSlowNATS and TestStopped make; 0 for a brief one "+
		"without the troubles that last longer than a whole request may take")

// longestCalm is how long the towns are driven at most between two troubles, as fast as the server
// answers, once it has answered as often as there are towns.
func longestCalm() time.Duration {
	if *tortureSlow == 0 {
		return 100 * time.Millisecond
	}
	return time.Second
}

// trouble is something that makes a server slow for a while.
type trouble struct {
	name  string
	lasts time.Duration
	brief time.Duration // how long it lasts if -torture.slow is 0; 0 leaves it out
	start func()
}

// suffer has the towns driven while one trouble comes after another, in an order that the seed
// draws, and checks that each is answered again when the last has ended.
func (r *torture) suffer(troubles []trouble, end func()) {
	r.t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1))
	if *tortureSlow == 0 {
		r.patience = time.Second
		troubles = slices.DeleteFunc(troubles, func(t trouble) bool { return t.brief == 0 })
		for i := range troubles {
			troubles[i].lasts = troubles[i].brief
		}
	}
	for _, trouble := range troubles { // and a second after each
		r.lasts += trouble.lasts + time.Second
	}
	for range max(*tortureSlow, 1) {
		random.Shuffle(len(troubles), func(i, j int) {
			troubles[i], troubles[j] = troubles[j], troubles[i]
		})
		var over atomic.Bool
		go func() {
			defer over.Store(true)
			for _, trouble := range troubles {
				trouble.start()
				time.Sleep(trouble.lasts) // the trouble itself
				end()
				for from := time.Now(); r.answers(from) < len(r.towns) && r.t.Context().Err() == nil; {
					time.Sleep(time.Millisecond) // between two looks
				}
				time.Sleep(time.Duration(random.Int64N(int64(longestCalm()))))
				r.kills[trouble.name]++
			}
		}()
		r.work(func(d *driven) bool { return !over.Load() || d.open != nil })
	}
	r.stop()
	r.report()
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
			r.mortal.start(nil)
			r.moveTo(nc)
			r.game.play(t, nc)
			cut := func() { line.Cut(true) }
			r.suffer([]trouble{
				{"delayed by 50 ms", time.Second, 200 * time.Millisecond,
					func() { line.Slow(50*time.Millisecond, 0) }},
				{"delayed by 500 ms", 2 * time.Second, time.Second / 2,
					func() { line.Slow(500*time.Millisecond, 0) }},
				{"16 KB/s", 3 * time.Second, time.Second / 2, func() { line.Slow(0, 16<<10) }},
				{"silent for 4 s", 4 * time.Second, 4 * time.Second, cut},
				{"silent for 12 s", 12 * time.Second, 0, cut},
			}, func() { line.Slow(0, 0); line.Cut(false) })
			r.args = append([]string{"--nats", nc.ConnectedUrl()}, flags...)
			r.game.leave(t, nc) // verifyAgain has another connection for it
			r.verifyAgain()
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
			r.start("always")
			stop := func() { _ = r.cmd.Process.Signal(syscall.SIGSTOP) }
			r.suffer([]trouble{
				{"stopped for 1 s", time.Second, time.Second, stop},
				{"stopped for 4 s", 4 * time.Second, 4 * time.Second, stop},
				{"stopped for 12 s", 12 * time.Second, 0, stop},
			}, func() { _ = r.cmd.Process.Signal(syscall.SIGCONT) })
			r.verifyAgain()
		})
	}
}

// steppedClock gives the engine of a handoffd process a clock that is set again and again, drawn
// from its number.
const steppedClock = "HANDOFFD_TEST_CLOCK"

// machineClock sets the wall clock of a whole process, NATS included, in a build by .ci/clock. Its
// value is a seed, and after how many readings the clock is set again.
const machineClock = "HANDOFFD_TEST_MACHINE_CLOCK"

var tortureMachine = flag.Bool("torture.machine", false,
	"whether TestClockSteps sets the clock of the whole process; takes a build by .ci/clock")

// steps returns the variable that gives a handoffd process a clock that is set at any moment.
func steps(seed uint64) string {
	if *tortureMachine {
		return fmt.Sprint(machineClock, "=", seed>>2, ",2000")
	}
	return fmt.Sprint(steppedClock, "=", seed)
}

func init() {
	if seed, err := strconv.ParseUint(os.Getenv(steppedClock), 10, 64); err == nil {
		engineClock = newSteppedClock(seed)
	}
}

// newSteppedClock returns a clock that is set by minutes to years, back and forth, about each tenth
// time that it is asked.
func newSteppedClock(seed uint64) func() time.Time {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	units := []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour}
	step := func() time.Duration {
		return units[random.IntN(len(units))] * time.Duration(random.IntN(11)-5)
	}
	off := step()
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(10) == 0 {
			off = step()
		}
		return time.Now().Add(off)
	}
}

// A clock that is set back and forth at any moment, by minutes to years, and at each start, loses
// nothing, has nothing applied twice, lets every command conclude, and changes no byte of a result.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	if *tortureMachine {
		requireMachineClock(t)
	}
	for _, apply := range []string{"local", "plugin"} {
		t.Run(apply, func(t *testing.T) {
			t.Parallel()
			stepped, steady := newTorture(t, apply), newTorture(t, apply)
			stepped.stepped, steady.seed = true, stepped.seed
			for n := range steady.towns { // the same clients again
				steady.towns[n] = newDriven(n, apply, stepped.seed)
			}
			stepped.first = 4 * len(stepped.towns) // so that both have results of the same handoffs
			stepped.start("interval")
			for range max(1, *tortureKills/2) {
				stepped.round("interval", "")
			}
			stepped.stop()
			stepped.report()
			steady.start("interval")
			steady.some(int64(stepped.answers(time.Time{})))
			steady.check()
			steady.stop()
			compared := 0
			for n, d := range stepped.towns {
				for i := range min(len(d.accepted), len(steady.towns[n].accepted)) {
					got, want := d.accepted[i], steady.towns[n].accepted[i]
					require.Equal(t, want.key, got.key, "-torture.seed=%d: %s", stepped.seed, d.id)
					require.Equal(t, want.resultID, got.resultID)
					if want.bytes != "" && got.bytes != "" {
						require.Equal(t, want.bytes, got.bytes)
						compared++
					}
				}
			}
			require.Positive(t, compared)
			t.Logf("%d results are the same, byte for byte", compared)
		})
	}
}

// requireMachineClock fails in a build whose processes have the machine's clock.
func requireMachineClock(t *testing.T) {
	t.Helper()
	const tenYears = "=315360000,0"
	p := launch(t, []string{machineClock + tenYears}, dataArgs(t.TempDir())...)
	require.Contains(t, p.stderr.String(), "time=")
	require.NotContains(t, p.stderr.String(), fmt.Sprint("time=", time.Now().Year(), "-"))
}
