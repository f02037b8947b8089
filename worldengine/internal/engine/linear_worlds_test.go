package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"worldengine/worldengine/internal/testkit/natstest"
)

// Two servers share two worlds with towns of the same names, keys and clients. A world is handed over,
// one of the servers ends, and another one begins: each world's history has an order of its own.
func TestLinearizable_TwoWorlds(t *testing.T) { // alone: two worlds need much
	first, nc := linearFirstSeed(), natstest.Connect(t)
	for round := range *linearRounds {
		seed := first + uint64(round)
		var runs []*linearRun
		for _, world := range []string{"east", "west"} {
			runs = append(runs, &linearRun{t: t, world: fmt.Sprint(world, round), url: nc.ConnectedUrl(),
				start: time.Now(), each: *linearCalls, patient: linearTimeout, nc: nc})
		}
		recordTwo(runs[0], runs[1], seed)
		for _, r := range runs {
			requireLinear(t, seed, func() []porcupine.Operation { return r.history })
		}
	}
	t.Logf("%d pairs of histories from -linear.seed=%d", *linearRounds, first)
}

// recordTwo records the histories of two worlds at once. Their clients draw the same calls.
func recordTwo(east, west *linearRun, seed uint64) {
	one, two := east.newWriter(), east.newWriter()
	one.serve(east)
	one.serve(west)
	waitEast, waitWest := east.call(seed), west.call(seed)
	west.await(1, 5)
	one.handOver(west, two)
	east.await(2, 5)
	one.crash()
	two.serve(east)
	west.await(3, 5)
	three := east.newWriter()
	two.handOver(west, three)
	east.await(4, 5)
	three.handOver(west, two)
	waitEast()
	waitWest()
	two.crash()
}
