package server_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/server"
)

// BenchmarkAppend appends events to a real server's engine, 64 appends in flight, of one event each
// or of 16, all to one run, to 64 runs, or each to a run of its own. events/s is the rate.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []server.Sync{server.SyncInterval, server.SyncAlways} {
		for _, batch := range []int{1, 16} {
			for _, runs := range []int64{1, 64, 0} {
				b.Run(fmt.Sprintf("%s/batch=%d/runs=%d", mode, batch, runs), func(b *testing.B) {
					benchmarkAppend(b, mode, batch, runs)
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, mode server.Sync, batch int, runs int64) {
	srv := start(b, func(c *server.Config) { c.Sync = mode })
	var next atomic.Int64
	b.SetParallelism(32) // times GOMAXPROCS, which is 2 on the machine of the figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			run := n
			if runs > 0 {
				run = n % runs
			}
			writes := make([]runevents.Write, batch)
			for i := range writes {
				writes[i] = written("run-"+strconv.FormatInt(run, 10), "Told", "step-1",
					n*int64(batch)+int64(i))
			}
			if _, err := srv.Engine().Runs().Append(b.Context(), "t", writes); err != nil {
				require.NoError(b, err)
			}
		}
	})
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkAppendOverNATS is BenchmarkAppend of one event over the verb run.append.
func BenchmarkAppendOverNATS(b *testing.B) {
	for _, mode := range []server.Sync{server.SyncInterval, server.SyncAlways} {
		b.Run(string(mode), func(b *testing.B) {
			c := connect(b, start(b, func(c *server.Config) { c.Sync = mode }))
			var next atomic.Int64
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := next.Add(1)
					c.append("t", written("run-"+strconv.FormatInt(n%64, 10), "Told", "step-1", n))
				}
			})
		})
	}
}
