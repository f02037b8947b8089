package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
			for n, d := range steady.towns { // the same clients again
				*d = *newTorturedTown(n, apply, stepped.seed)
				d.open = d.putOf(d.state, "")
			}
			stepped.first = 4 * len(stepped.towns) // so that both have results of the same handoffs
			stepped.start("interval")
			for range max(1, *tortureKills/2) {
				stepped.round("interval", "")
			}
			stepped.stop(stepped.running, stepped.nc)
			stepped.report()
			steady.some(int64(stepped.answered()))
			steady.verify()
			compared := 0
			for n, d := range stepped.towns {
				for i := range min(len(d.accepted), len(steady.towns[n].accepted)) {
					got, want := d.accepted[i], steady.towns[n].accepted[i]
					require.Equal(t, want.key, got.key, "-torture.seed=%d: %s", stepped.seed, d.id)
					require.Equal(t, want.resultID, got.resultID, "-torture.seed=%d: %s",
						stepped.seed, d.id)
					if want.bytes != "" && got.bytes != "" {
						require.Equal(t, want.bytes, got.bytes, "-torture.seed=%d: %s",
							stepped.seed, d.id)
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
	p := launch(t, []string{machineClock + tenYears}, onData(t.TempDir())...)
	require.Contains(t, p.stderr.String(), "time=")
	require.NotContains(t, p.stderr.String(), fmt.Sprint("time=", time.Now().Year(), "-"))
}
