package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The heap may grow to four times what lives while that is little, then by a bounded amount, and
// where much has pointers, to twice that.
func TestHowFarTheHeapGrows(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		heap heap
		want int
	}{
		"nothing is known":          {heap{}, 300},
		"a small world":             {heap{60 * mib, 30 * mib, 61 * mib}, 300},
		"blocks of streams":         {heap{511 * mib, 60 * mib, 512 * mib}, 50},
		"a large world":             {heap{900 * mib, 600 * mib, 1000 * mib}, 120},
		"more blocks than all else": {heap{4000 * mib, 60 * mib, 4000 * mib}, 25},
	} {
		require.Equal(t, c.want, growth(c.heap), name)
	}
}

// Memory is given back once after each load, not while there is none.
func TestWhenMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	var l load
	var ended []bool
	for _, allocated := range []uint64{quiet - 1, 9 * quiet, 12 * quiet, 12*quiet + 1, 12*quiet + 2,
		13*quiet + 2, 13*quiet + 3} {
		ended = append(ended, l.ended(allocated))
	}
	require.Equal(t, []bool{false, false, false, true, false, false, true}, ended)
	require.NotZero(t, readAllocated())
}

// Each collection is told of, not the first one alone, and leaves something to read.
func TestCollectionsAreToldOf(t *testing.T) {
	t.Parallel()
	collected := make(chan struct{}, 1)
	afterEachCollection(func() {
		select {
		case collected <- struct{}{}:
		default:
		}
	})
	for range 3 {
		for waits := 0; ; waits++ {
			require.Less(t, waits, 100, "a collection was not told of")
			runtime.GC()
			told := false
			select {
			case <-collected:
				told = true
			case <-time.After(100 * time.Millisecond):
			}
			if told {
				break
			}
		}
	}
	h := readHeap()
	require.NotZero(t, h.live)
	require.NotZero(t, h.pointers)
	require.GreaterOrEqual(t, h.base, h.live)
}
