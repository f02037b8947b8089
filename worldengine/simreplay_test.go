package worldengine

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var simReplays = flag.Uint64("sim.replays", 20, "how many seeds of the simulation to run twice")

// A seed decides everything: whenever it is run, it takes the same steps.
func TestSimulationReplays(t *testing.T) {
	t.Parallel()
	for seed := *simFirst; seed < *simFirst+*simReplays; seed++ {
		first, again := simulatedSteps(t, seed), simulatedSteps(t, seed)
		for i := range min(len(first), len(again)) {
			require.Equal(t, first[i], again[i], "seed %d, step %d", seed, i)
		}
		require.Len(t, again, len(first), "seed %d", seed)
	}
}

func simulatedSteps(t *testing.T, seed uint64) (steps []string) {
	found := simulate(t, seed, func(format string, args ...any) {
		steps = append(steps, fmt.Sprintf(format, args...))
	}, nil)
	return append(steps, found...)
}
