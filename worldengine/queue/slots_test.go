package queue

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
		s := NewSlots(perTown, total)
		var taken []string
		for range 300 {
			if len(taken) > 0 && g.IntN(3) == 0 {
				at := g.IntN(len(taken))
				s.Release(taken[at])
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
			want, free := Granted, total-len(taken)
			switch {
			case free <= 0:
				want = AllFull
			case has >= perTown, has > 0 && has >= free:
				want = TownFull
			}
			switch g.IntN(10) {
			case 0:
				s.Force(town)
				want = Granted
			case 1, 2, 3, 4:
				require.Equal(t, want, s.Take(town), "%s has %d of %d, %d are free", town, has,
					perTown, free)
			default:
				name, load, refusal := s.TakeBytes([]byte(town))
				require.Equal(t, want, refusal, "%s has %d of %d, %d are free", town, has,
					perTown, free)
				require.Equal(t, Load{has, len(taken)}, load)
				require.Equal(t, refusal == Granted, name == town)
			}
			if want == Granted {
				taken = append(taken, town)
				has++
			}
			require.Equal(t, Load{has, len(taken)}, s.Load(town))
			require.Equal(t, len(taken), s.Taken())
		}
		for _, town := range taken {
			s.Release(town)
		}
		require.Zero(t, s.Taken())
		require.Empty(t, s.towns, "a town without slots takes no memory")
	}
}

// A refusal costs no memory.
func TestSlots_RefusalAllocatesNothing(t *testing.T) {
	s := NewSlots(1, 4)
	id := []byte("a town with a long name, which is no small string")
	_, _, refusal := s.TakeBytes(id)
	require.Equal(t, Granted, refusal)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, refusal := s.TakeBytes(id); refusal != TownFull {
			t.Error("not refused")
		}
	}))
}
