package server_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/server"
)

// BenchmarkAppendToALongLog appends to one server until its log has 200,000 events, ten an append,
// each append to a run of its own or all to 64 runs: first/s and last/s are the events a second of
// the first and of the last tenth of it, ratio the last to the first, and failed how many appends
// were not answered in time. The 64 runs have more events in the end than an engine remembers of
// runs.
func BenchmarkAppendToALongLog(b *testing.B) {
	for name, runs := range map[string]int64{"new runs": 1 << 40, "64 runs": 64} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				benchmarkALongLog(b, runs)
			}
		})
	}
}

func benchmarkALongLog(b *testing.B, runs int64) {
	srv := start(b, func(c *server.Config) { c.Sync = server.SyncInterval })
	const batch, tenth, parts = 10, 20_000, 10
	var next, failed atomic.Int64
	var rates []float64
	for range parts {
		began, end := time.Now(), next.Load()+tenth/batch
		var writers sync.WaitGroup
		for range 64 {
			writers.Go(func() {
				for n := next.Add(1); n <= end; n = next.Add(1) {
					writes := make([]runevents.Write, batch)
					for i := range writes {
						writes[i] = written(fmt.Sprintf("run-%d", n%runs), "Told", "step-1",
							n*batch+int64(i))
					}
					if _, err := srv.Engine().Runs().Append(b.Context(), "t", writes); err != nil {
						failed.Add(1)
					}
				}
			})
		}
		writers.Wait()
		next.Store(end)
		rates = append(rates, tenth/time.Since(began).Seconds())
	}
	require.Len(b, rates, parts)
	b.ReportMetric(float64(failed.Load()), "failed")
	b.ReportMetric(rates[0], "first/s")
	b.ReportMetric(rates[parts-1], "last/s")
	b.ReportMetric(rates[parts-1]/rates[0], "ratio")
}
