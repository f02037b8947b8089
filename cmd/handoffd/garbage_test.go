package main

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The heap may grow to four times what lives while that is little, then by a bounded amount.
func TestGarbage_Growth(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct{ heap, garbage, want uint64 }{
		{0, 256, 300}, {61, 256, 300}, {512, 256, 50}, {512, 1024, 200}, {4000, 256, 25},
	} {
		require.EqualValues(t, c.want, growth(c.heap*mib, c.garbage*mib), "%+v", c)
	}
}

// More garbage is allowed as long as collections cost more than a quarter of all else, within
// bounds and the memory limit, and less again if they cost less.
func TestGarbage_Allowance(t *testing.T) {
	t.Parallel()
	const mib, none = 1 << 20, math.MaxInt64
	for _, c := range []struct {
		name        string
		garbage     uint64 // allowed before
		allocated   uint64
		gc          float64 // of 1 s of all else
		limit, want uint64
	}{
		{"cheap", 256 * mib, 260 * mib, 0.05, none, 256 * mib},
		{"as it should be", 512 * mib, 500 * mib, 0.25, none, 512 * mib},
		{"half too dear", 256 * mib, 260 * mib, 0.375, none, 384 * mib},
		{"far too dear", 256 * mib, 260 * mib, 2, none, 512 * mib},
		{"as much as there may be", 900 * mib, 900 * mib, 0.5, none, 1024 * mib},
		{"little memory", 256 * mib, 256 * mib, 0.5, 2400 * mib, 300 * mib},
		{"too little memory", 256 * mib, 256 * mib, 0.5, 400 * mib, 256 * mib},
		{"cheaper again", 1024 * mib, 1000 * mib, 0.2, none, 1024 * mib * 4 / 5},
		{"the load has ended", 1024 * mib, 1000 * mib, 0.01, none, 512 * mib},
		{"collected for another reason", 512 * mib, 100 * mib, 2, none, 512 * mib},
	} {
		before := usage{allocated: 1000 * mib, gc: 10, user: 100}
		a := allowance{garbage: c.garbage, before: before}
		now := usage{before.allocated + c.allocated, before.gc + c.gc, before.user + 1}
		a.adjust(now, c.limit)
		require.InDelta(t, float64(c.want), float64(a.garbage), mib, c.name)
		require.Equal(t, now, a.before, c.name)
	}
}

// Memory is given back once after each load, not while there is none.
func TestGarbage_LoadEnds(t *testing.T) {
	t.Parallel()
	var l load
	var ended []bool
	for _, allocated := range []uint64{quiet - 1, 9 * quiet, 12 * quiet, 12*quiet + 1, 12*quiet + 2,
		13*quiet + 2, 13*quiet + 3} {
		ended = append(ended, l.ended(allocated))
	}
	require.Equal(t, []bool{false, false, false, true, false, false, true}, ended)
}

// Each collection is noticed, until the function returns false, and leaves metrics to read.
func TestGarbage_Collections(t *testing.T) {
	t.Parallel()
	calls, count := make(chan int, 64), 0
	afterEachCollection(func() bool {
		count++
		calls <- count
		return count < 3
	})
	for want := 1; want <= 3; want++ {
		require.Eventually(t, func() bool { runtime.GC(); return len(calls) >= want }, time.Minute,
			time.Millisecond)
	}
	for range 5 {
		runtime.GC()
	}
	require.Len(t, calls, 3)
	used := readUsage()
	require.NotZero(t, readHeap())
	require.NotZero(t, used.allocated)
	require.Positive(t, min(used.gc, used.user))
}
