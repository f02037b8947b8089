package engine

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

var (
	simSeed = flag.Uint64("sim.seed", 0,
		"run this seed of the simulation alone, and tell its steps")
	simSeeds   = flag.Uint64("sim.seeds", 20, "how many seeds of the simulation to run")
	simFirst   = flag.Uint64("sim.first", 1, "the first of these seeds")
	simReplays = flag.Uint64("sim.replays", 4, "how many seeds of the simulation to run twice")
)

// TestSimulation runs the real engines through schedules that seeds decide: crashes, lost messages
// and answers, appends that a deposed leader refuses, expired windows, races of two engines, late requests to
// a game. A seed that finds something runs again with its steps printed, by the failure's command.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simSeed != 0 {
		simulate(t, *simSeed, t.Logf, nil)
		return
	}
	next, end := atomic.Uint64{}, *simFirst+*simSeeds
	next.Store(*simFirst - 1)
	for range runtime.GOMAXPROCS(0) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1); seed < end; seed = next.Add(1) {
				if found := simulate(t, seed, nil, nil); len(found) > 0 {
					t.Fatalf("%.1000s\n\ngo test ./worldengine -run '^TestSimulation$' "+
						"-sim.seed=%d -v", found[0], seed)
				}
			}
		})
	}
}

// simulate runs a seed, with a bug that change plants.
func simulate(
	t *testing.T, seed uint64, trace func(string, ...any), change func(*sim),
) (found []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(seed)
		if trace != nil {
			s.trace = trace
		}
		if change != nil {
			change(s)
		}
		steps := 500
		if s.fails() {
			steps = 1000 // until there is something to be tried again
		}
		if s.strict() || s.short() {
			steps = 2000
		}
		found = s.run(steps)
		if trace != nil && len(found) > 0 {
			t.Errorf("%.1000s", found[0])
		}
	})
	return found
}

// A seed that found something finds it again in a few runs: of some seeds the same steps are taken
// twice. Not of every one: goroutines that wake at one instant come in any order.
func TestSimulation_Replays(t *testing.T) {
	t.Parallel()
	const tries = 16
	begin, repeated := *simFirst+*simFirst%2, uint64(0) // of one worker
	for seed := begin; seed < begin+2**simReplays; seed += 2 {
		taken := map[string]bool{}
		again := false
		for range tries {
			steps := strings.Join(simulatedSteps(t, seed), "\n")
			if again = taken[steps]; again {
				break
			}
			taken[steps] = true
		}
		if again {
			repeated++
		}
	}
	require.GreaterOrEqual(t, 4*repeated, *simReplays, "too many seeds took %d different ways", tries)
}

func simulatedSteps(t *testing.T, seed uint64) (steps []string) {
	found := simulate(t, seed, func(format string, args ...any) {
		steps = append(steps, fmt.Sprintf(format, args...))
	}, nil)
	return append(steps, found...)
}
