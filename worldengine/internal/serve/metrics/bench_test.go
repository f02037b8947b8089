package metrics_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/serve/metrics"
	"worldengine/worldengine/wire"
)

// BenchmarkHandoff counts one handoff that a plugin applies, and one extra commit.
func BenchmarkHandoff(b *testing.B) {
	w := metrics.New("1.2.3").World("main")
	b.ReportAllocs()
	for b.Loop() {
		for range 3 {
			w.AppendTried(time.Millisecond)
		}
		w.Attempt(apply.Plugin, apply.AttemptResult{Applied: true}, time.Millisecond)
		w.Handoff(handoff.Executed, time.Millisecond)
		w.Request(wire.Handoff, "", time.Millisecond)
	}
}

// BenchmarkScrape answers one scrape of a server with many worlds without traffic.
func BenchmarkScrape(b *testing.B) {
	for _, worlds := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("worlds=", worlds), func(b *testing.B) {
			m := metrics.New("1.2.3")
			samples := make([]metrics.WorldSample, worlds)
			for i := range samples {
				samples[i] = metrics.WorldSample{World: fmt.Sprint("world-", i), Serving: true,
					Streams: map[string]metrics.Stream{"LOG": {}, "ALERTS": {}}}
				m.World(samples[i].World)
			}
			m.Watch(func(context.Context) metrics.Sample { return metrics.Sample{Worlds: samples} })
			b.ReportAllocs()
			for b.Loop() {
				b.ReportMetric(float64(len(scraped(b, m))), "bytes/scrape")
			}
		})
	}
}
