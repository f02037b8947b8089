package cluster_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node loses its disk: it comes back without anything, and is given all of it by the others. That
// it has it is seen when another node is lost right after.
func TestADiskIsLost(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	w.drive(drivenTowns, requestTimeout)
	var gaps []gap
	for k := range *rounds * size {
		i, next := k%size, (k+1)%size
		from := time.Now()
		w.kill(i)
		require.NoError(t, os.RemoveAll(w.data(i)))
		w.hammer.waitAnswers(5, everywhere...)
		w.start(i)
		w.waitAll()
		w.waitReplicas(w.clients[next])
		gaps = append(gaps, w.hammer.gapSince(from, everywhere...))
		t.Logf("nats-%d has everything again after %s", i+1,
			time.Since(from).Round(10*time.Millisecond))

		w.kill(next)
		w.hammer.waitAnswers(5, everywhere...)
		w.start(next)
		w.waitAll()
		w.waitReplicas(w.clients[i])
	}
	report(t, "a node killed that comes back without its disk", gaps)
	w.finish()
}
