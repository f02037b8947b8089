package handoffd

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The heap may grow by garbage bytes before a collection, but at least by minGrowth and at most
// by maxGrowth percent of its live part. That part is mostly large blocks, which cost little to
// collect.
const (
	garbage   = 64 << 20
	minGrowth = 25
	maxGrowth = 300
)

// boundHeapGrowth bounds the growth of the heap from now on, unless GOGC does.
func boundHeapGrowth() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(maxGrowth)
		runAfterCollection(adjustGrowth)
	}
}

// runAfterCollection calls f once after the next collection, from a goroutine of the runtime.
func runAfterCollection(f func()) {
	large := new([32]byte) // the allocator may join objects of up to 16 bytes
	runtime.AddCleanup(large, func(f func()) { f() }, f)
}

// adjustGrowth sets the growth after each collection.
func adjustGrowth() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growth(live[0].Value.Uint64()))
	runAfterCollection(adjustGrowth)
}

// growth returns the percentage by which a heap with some live bytes may grow.
func growth(live uint64) int {
	return int(min(max(garbage*100/max(live, 1), minGrowth), maxGrowth))
}
