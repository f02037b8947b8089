package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How far the heap grows before it is collected, where the operator does not say otherwise with
// GOGC: to four times what lives, as long as that is little, since every handoff leaves garbage and
// a collection at twice the heap costs a sixth more processor time. Beyond leastGarbage it grows by
// twice what a collection has to look through, which is most of its cost: the blocks of streams
// that NATS keeps hold no pointers and cost little.
const (
	gcPercent    = 300
	leastGarbage = 256 << 20
	leastGC      = 25 // percent; with less, many blocks in memory would have it collect too often
)

// What is not used is given back once a time of lookEvery has left less than quiet of garbage.
const (
	lookEvery = 15 * time.Second
	quiet     = 16 << 20
)

// collectGarbage lets the heap grow as far as growth says, from each collection to the next, and
// gives memory back when the load has ended, until ctx is done. Where the environment has GOGC,
// that says how far, and the Go runtime gives back by itself.
func collectGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	collected := make(chan struct{}, 1)
	afterEachCollection(func() {
		select {
		case collected <- struct{}{}:
		default:
		}
	})
	go func() {
		looks := time.NewTicker(lookEvery)
		defer looks.Stop()
		var load load
		set := gcPercent
		for {
			select {
			case <-ctx.Done():
				return
			case <-collected:
				if percent := growth(readHeap()); percent != set {
					debug.SetGCPercent(percent)
					set = percent
				}
			case <-looks.C:
				if load.ended(readAllocated()) {
					debug.FreeOSMemory()
				}
			}
		}
	}()
}

// load tells when a load ends, from how many bytes were allocated in all at each look.
type load struct {
	allocated uint64
	busy      bool
}

// ended reports whether the time since the last look was the first quiet one.
func (l *load) ended(allocated uint64) bool {
	before, was := l.allocated, l.busy
	l.allocated, l.busy = allocated, allocated-before >= quiet
	return was && !l.busy
}

func readAllocated() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// afterEachCollection calls f after each collection of garbage, from a goroutine of the runtime.
func afterEachCollection(f func()) {
	sentinel := new([16]byte) // too large for the allocator of tiny objects
	runtime.SetFinalizer(sentinel, func(*[16]byte) {
		f()
		afterEachCollection(f)
	})
}

// heap is what the last collection has left.
type heap struct {
	live     uint64 // bytes
	pointers uint64 // of them, and of stacks and globals, those that a collection looks through
	base     uint64 // what the percentage of GOGC is of: the live heap, stacks and globals
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/total:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	live := samples[0].Value.Uint64()
	return heap{
		live: live, pointers: samples[1].Value.Uint64(),
		base: live + samples[2].Value.Uint64() + samples[3].Value.Uint64(),
	}
}

// growth returns by how many percent the heap may grow.
func growth(h heap) int {
	if h.base == 0 {
		return gcPercent
	}
	percent := max(leastGarbage, 2*h.pointers) * 100 / h.base
	return int(min(max(percent, leastGC), gcPercent))
}
