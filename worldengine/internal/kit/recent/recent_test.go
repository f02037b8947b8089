package recent_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/recent"
)

// A map agrees with a list of its entries, the oldest first.
func TestMap_AgreesWithAList(t *testing.T) {
	t.Parallel()
	type entry struct{ key, value int }
	g := rand.New(rand.NewPCG(1, 1))
	for limit := 1; limit <= 8; limit++ {
		m := recent.NewMap[int, int](limit)
		var list []entry
		for i := range 2000 {
			key := g.IntN(2 * limit)
			is := func(e entry) bool { return e.key == key }
			isNew := !slices.ContainsFunc(list, is)
			require.Equal(t, isNew, m.Add(key, i))
			if isNew {
				list = append(list, entry{key, i})
			}
			list = list[max(0, len(list)-limit):]
			for key = range 2 * limit {
				value, known := m.Get(key)
				at := slices.IndexFunc(list, is)
				require.Equal(t, at >= 0, known)
				if known {
					require.Equal(t, list[at].value, value)
				}
			}
		}
	}
}

// Of many that add the same key at once, exactly one is told that it is new.
func TestMap_ConcurrentAdd(t *testing.T) {
	t.Parallel()
	m := recent.NewMap[int, struct{}](100)
	counts := make([]int, 8)
	var group sync.WaitGroup
	for i := range counts {
		group.Go(func() {
			for key := range 100 {
				if m.Add(key, struct{}{}) {
					counts[i]++
				}
			}
		})
	}
	group.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	require.Equal(t, 100, sum)
}
