package metrics_test

import (
	"testing"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/metrics"
	"worldengine/worldengine/wire"
)

// BenchmarkHandoff counts one handoff that a plugin applies, and one extra commit.
func BenchmarkHandoff(b *testing.B) {
	m := metrics.New("1.2.3")
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			m.Commit(time.Millisecond)
		}
		m.Attempt(apply.Plugin, apply.Result{Applied: true}, time.Millisecond)
		m.Handoff(handoff.Executed, time.Millisecond)
		m.Request(wire.Handoff, "", time.Millisecond)
	}
}
