package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
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
		s := newSlots(perTown, total, new(atomic.Int64))
		var taken []string
		for range 300 {
			if len(taken) > 0 && g.IntN(3) == 0 {
				at := g.IntN(len(taken))
				s.release(slotOwner{"main", taken[at]})
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
				want = worldFull
			case has >= perTown, has > 0 && has >= free:
				want = keyFull
			}
			of, now, why := s.acquire("main", []byte(town))
			require.Equal(t, want, why, "%s has %d of %d, %d are free", town, has, perTown, free)
			require.Equal(t, slotLoad{has, len(taken)}, now)
			require.Equal(t, why == granted, of == slotOwner{"main", town})
			if want == granted {
				taken = append(taken, town)
				has++
			}
			require.Equal(t, slotLoad{has, len(taken)}, s.load(slotOwner{"main", town}))
			require.Equal(t, len(taken), s.used)
		}
		for _, town := range taken {
			s.release(slotOwner{"main", town})
		}
		require.Zero(t, s.used)
		require.Empty(t, s.owners, "a town without slots takes no memory")
		require.Empty(t, s.worlds)
	}
}

// A refusal costs no memory.
func TestSlots_RefusalAllocatesNothing(t *testing.T) {
	s := newSlots(1, 4, new(atomic.Int64))
	id := []byte("a town with a long name, which is no small string")
	_, _, why := s.acquire("main", id)
	require.Equal(t, granted, why)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, why := s.acquire("main", id); why != keyFull {
			t.Error("not refused")
		}
	}))
}

// With several worlds, a world gets slots as long as it has fewer than are free, and its towns share
// the slots that it can still get. So a flood about many towns of one world leaves slots to every other world.
func TestSlots_Worlds(t *testing.T) {
	t.Parallel()
	open := new(atomic.Int64)
	open.Store(1)
	s := newSlots(100, 90, open)
	flood := func(world string) (got int, why shedReason) {
		for {
			of, _, refused := s.acquire(world, fmt.Append(nil, "town ", got))
			if refused != granted {
				return got, refused
			}
			require.Equal(t, world, of.world)
			got++
		}
	}
	got, why := flood("a")
	require.Equal(t, 90, got, "the only world gets all")
	require.Equal(t, worldFull, why)
	for i := range got {
		s.release(slotOwner{"a", fmt.Sprint("town ", i)})
	}
	open.Store(2)
	for i, want := range []int{45, 23, 11, 6, 3, 1, 1} {
		got, why := flood(fmt.Sprint("world ", i))
		require.Equal(t, want, got, "world %d", i)
		require.Contains(t, []shedReason{worldFull, serverFull}, why)
	}
	require.Equal(t, 90, s.used)
	_, _, why = s.acquire("another", []byte("a town"))
	require.Equal(t, serverFull, why, "eight worlds have all slots")
}

// A town of one of several worlds leaves slots to the other towns of its world.
func TestSlots_TownOfWorld(t *testing.T) {
	t.Parallel()
	open := new(atomic.Int64)
	open.Store(2)
	s := newSlots(100, 100, open)
	got, why := 0, granted
	for why == granted {
		if _, _, why = s.acquire("a", []byte("busy")); why == granted {
			got++
		}
	}
	require.Equal(t, keyFull, why)
	require.Equal(t, 25, got)
	_, _, why = s.acquire("a", []byte("calm"))
	require.Equal(t, granted, why)
}
