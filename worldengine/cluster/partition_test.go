package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node is cut off with its engine and its clients: there nothing is answered any more, the others
// go on, and once it is back all agree.
func TestPartition(t *testing.T) {
	long(t)
	w := startWorld(t, true)
	w.drive(drivenTowns, requestTimeout)
	var majority, minority []gap
	for k := range *rounds {
		i := k % size
		others := []int{(i + 1) % size, (i + 2) % size}
		from := time.Now()
		w.cut(i)
		w.hammer.waitAnswers(5, others...)
		majority = append(majority, w.hammer.gapSince(from, others...))
		// By now whatever the lost node had in hand has ended; nothing new may be answered there.
		deaf := time.Now()
		w.hammer.waitAnswers(20, others...)
		require.Zero(t, w.hammer.answersSince(deaf, i), "a node without a majority answers")
		healed := time.Now()
		w.heal(i)
		w.hammer.waitAnswers(5, everywhere...)
		minority = append(minority, w.hammer.gapSince(healed, i))
		w.waitReplicas(w.clients[others[0]])
	}
	report(t, "a node cut off, as the others see it", majority)
	report(t, "the same node, from when it is joined again", minority)
	w.finish()
}
