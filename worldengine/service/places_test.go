package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is taken and given back: a place is given and refused as a list of what is taken says, a town
// without any gets one as long as one is free, and nobody with some gets the last one.
func TestPlacesAreSharedAsInTheModel(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		perTown, total := 1+g.IntN(10), 1+g.IntN(40)
		p := newPlaces(perTown, total)
		var taken []string
		for range 300 {
			if len(taken) > 0 && g.IntN(3) == 0 {
				at := g.IntN(len(taken))
				p.giveBack(taken[at])
				taken = slices.Delete(taken, at, at+1)
				continue
			}
			town := fmt.Sprint("hot ", g.IntN(5))
			if g.IntN(8) == 0 {
				town = fmt.Sprint("cold ", g.IntN(40))
			}
			has, free := 0, total-len(taken)
			for _, other := range taken {
				if other == town {
					has++
				}
			}
			want := none
			switch {
			case free == 0:
				want = noPlace
			case has >= perTown, has > 0 && has >= free:
				want = noPlaceForTown
			}
			name, why, pause := p.take([]byte(town))
			require.Equal(t, want, why, "%s has %d of %d, %d are free", town, has, perTown, free)
			if why == none {
				require.Equal(t, town, name)
				taken = append(taken, town)
			} else {
				require.Equal(t, pauseFor(has, len(taken)), pause)
			}
			require.Equal(t, len(taken), p.count())
		}
		for _, town := range taken {
			p.giveBack(town)
		}
		require.Zero(t, p.count())
		require.Empty(t, p.towns, "a town without requests takes no memory")
	}
}

// The pause grows with what waits, within its bounds, and is one that an answer was made for.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{50, 50, 100, 550, 550, 1000, 1000}, []int{
		pauseFor(0, 0), pauseFor(3, 3), pauseFor(30, 30), pauseFor(258, 258), pauseFor(2, 2048), pauseFor(2, 1<<20), pauseFor(1<<20, 0),
	})
	last := 0
	for n := range 5000 {
		pause := pauseFor(0, n)
		require.GreaterOrEqual(t, pause, last)
		require.NotEmpty(t, overloadedHeaders[pause/pauseStep], "%d", pause)
		require.Equal(t, []string{fmt.Sprint(pause)}, overloadedHeaders[pause/pauseStep]["Retry-After-Ms"])
		last = pause
	}
}

// Bytes never exceed their bound, and what is given back twice counts once.
func TestBytesThatAreHeld(t *testing.T) {
	t.Parallel()
	h := &heldBytes{bound: 1000}
	in := newPlaces(1<<20, 1<<21)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := range int64(2000) {
				if !h.take(n % 400) {
					continue
				}
				if held := h.held.Load(); held > h.bound {
					t.Errorf("%d bytes are held", held)
				}
				name, _, _ := in.take([]byte("t"))
				p := &place{in: in, held: h, town: name, bytes: n % 400}
				p.giveBack()
				p.giveBack()
			}
		})
	}
	clients.Wait()
	require.Zero(t, h.held.Load())
	require.Zero(t, in.count())
	require.True(t, h.take(1000))
	require.False(t, h.take(1))
}

// A refusal costs no memory.
func TestARefusalAllocatesNothing(t *testing.T) {
	p := newPlaces(1, 4)
	body := []byte(`{"proposal":{"townId":"a town with a long name, which is no small string"}}`)
	_, why, _ := p.take(guess(aboutTown, body))
	require.Equal(t, none, why)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, why, _ := p.take(guess(aboutTown, body)); why != noPlaceForTown {
			t.Error("not refused")
		}
	}))
}
