package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Without GOGC the heap grows to four times its live part before it is collected, but only by the
// allowed garbage, leastGarbage at first. The more runs and receipts NATS knows, the more a
// collection costs. So more garbage is allowed while collections take more than gcCost of the
// processor time of all else: up to mostGarbage, or to an eighth of the soft memory limit.
const (
	gcPercent    = 300
	leastGC      = 25 // percent; with less, many blocks in memory would cause too many collections
	leastGarbage = 256 << 20
	mostGarbage  = 1 << 30
	gcCost       = 0.25
)

// Unused memory is given back if a load has ended: fewer than quiet bytes were allocated in
// lookEvery.
const (
	lookEvery = 15 * time.Second
	quiet     = 16 << 20
)

// collectGarbage sets the growth of the heap after each collection, and gives memory back when the
// load has ended, until ctx is done. With GOGC in the environment it does nothing, and the Go runtime
// gives memory back by itself.
func collectGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	collected := make(chan struct{}, 1)
	afterEachCollection(func() bool {
		select {
		case collected <- struct{}{}:
		default:
		}
		return ctx.Err() == nil
	})
	go func() {
		looks := time.NewTicker(lookEvery)
		defer looks.Stop()
		var load load
		allowed := allowance{garbage: leastGarbage, before: readUsage()}
		set := gcPercent
		for {
			select {
			case <-ctx.Done():
				return
			case <-collected:
				allowed.adjust(readUsage(), uint64(debug.SetMemoryLimit(-1)))
				if percent := growth(readHeap(), allowed.garbage); percent != set {
					debug.SetGCPercent(percent)
					set = percent
				}
			case <-looks.C:
				if load.ended(readUsage().allocated) {
					debug.FreeOSMemory()
				}
			}
		}
	}()
}

// load finds the end of a load. It knows the total of allocated bytes at the last look.
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

// afterEachCollection calls f after each collection of garbage, from a goroutine of the runtime,
// until f returns false.
func afterEachCollection(f func() bool) {
	sentinel := new([16]byte) // too large for the allocator of tiny objects
	runtime.SetFinalizer(sentinel, func(*[16]byte) {
		if f() {
			afterEachCollection(f)
		}
	})
}

// allowance bounds the garbage before a collection.
type allowance struct {
	garbage uint64
	before  usage // at the last collection
}

// usage counts since the start of the process: allocated bytes, processor seconds of collections
// without idle time, and processor seconds of all else.
type usage struct {
	allocated uint64
	gc, user  float64
}

// adjust sets the allowed garbage so that the last collection would have cost gcCost; at most it
// halves or doubles it. now is the usage at the end of that collection. If little was allocated,
// the collection came for another reason and counts for nothing.
func (a *allowance) adjust(now usage, limit uint64) {
	allocated, gc, user := now.allocated-a.before.allocated, now.gc-a.before.gc,
		now.user-a.before.user
	a.before = now
	if allocated < a.garbage/2 || user <= 0 {
		return
	}
	wanted := gc / user / gcCost * float64(a.garbage)
	wanted = max(float64(a.garbage)/2, min(wanted, 2*float64(a.garbage)))
	a.garbage = max(leastGarbage, min(uint64(wanted), mostGarbage, limit/8))
}

func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}, {Name: "/cpu/classes/user:cpu-seconds"},
	}
	metrics.Read(samples)
	return usage{
		allocated: samples[0].Value.Uint64(), user: samples[3].Value.Float64(),
		gc: samples[1].Value.Float64() - samples[2].Value.Float64(),
	}
}

// readHeap returns the bytes that the last collection has left, to which the percentage of GOGC
// refers: the live heap, stacks and globals.
func readHeap() uint64 {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	var bytes uint64
	for i := range samples {
		bytes += samples[i].Value.Uint64()
	}
	return bytes
}

// growth returns the percentage by which a heap may grow if an amount of garbage is allowed.
func growth(heap, garbage uint64) int {
	if heap == 0 {
		return gcPercent
	}
	return int(min(max(garbage*100/heap, leastGC), gcPercent))
}
