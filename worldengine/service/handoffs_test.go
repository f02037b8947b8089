package service

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Handoffs that are parsed in any order are submitted in the order of their arrival, each as soon
// as all before it are parsed.
func TestLine_Order(t *testing.T) {
	t.Parallel()
	const n = 100
	g := rand.New(rand.NewPCG(7, 7))
	var l line
	arrived, parsed, submitted := make([]*incoming, n), make([]bool, n), 0
	for i := range arrived {
		arrived[i] = new(incoming)
		l.join(arrived[i])
	}
	for _, i := range g.Perm(n) {
		parsed[i] = true
		l.parsed(arrived[i], func() {
			require.Equal(t, submitted, i)
			submitted++
		})
		require.True(t, submitted == n || !parsed[submitted], "%d could be submitted", submitted)
	}
	require.Equal(t, n, submitted)
	require.Empty(t, l.waiting)
}
