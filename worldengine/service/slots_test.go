package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Slots are given and refused as by a list of the taken ones: a town without any gets one as long
// as one is free, and no town with some gets the last one.
func TestSlots_AsInTheModel(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		perTown, total := 1+g.IntN(10), 1+g.IntN(40)
		s := newSlots(perTown, total)
		var taken []string
		for range 300 {
			if len(taken) > 0 && g.IntN(3) == 0 {
				at := g.IntN(len(taken))
				s.release(taken[at])
				taken = slices.Delete(taken, at, at+1)
				continue
			}
			town := fmt.Sprint("hot ", g.IntN(5))
			if g.IntN(8) == 0 {
				town = fmt.Sprint("cold ", g.IntN(40))
			}
			has := 0
			for _, other := range taken {
				if other == town {
					has++
				}
			}
			want, free := granted, total-len(taken)
			switch {
			case free <= 0:
				want = allFull
			case has >= perTown, has > 0 && has >= free:
				want = townFull
			}
			name, now, why := s.take([]byte(town))
			require.Equal(t, want, why, "%s has %d of %d, %d are free", town, has, perTown, free)
			require.Equal(t, load{has, len(taken)}, now)
			require.Equal(t, why == granted, name == town)
			if want == granted {
				taken = append(taken, town)
				has++
			}
			require.Equal(t, load{has, len(taken)}, s.load(town))
			require.Equal(t, len(taken), s.taken)
		}
		for _, town := range taken {
			s.release(town)
		}
		require.Zero(t, s.taken)
		require.Empty(t, s.towns, "a town without slots takes no memory")
	}
}

// A refusal costs no memory.
func TestSlots_RefusalAllocatesNothing(t *testing.T) {
	s := newSlots(1, 4)
	id := []byte("a town with a long name, which is no small string")
	_, _, why := s.take(id)
	require.Equal(t, granted, why)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, why := s.take(id); why != townFull {
			t.Error("not refused")
		}
	}))
}
