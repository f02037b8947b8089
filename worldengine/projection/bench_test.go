package projection_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// BenchmarkRunner projects runs of ten events that a stream has already, NATS included: events/s is
// the rate.
func BenchmarkRunner(b *testing.B) {
	const runs = 5_000
	bus := newBus(b)
	for i := range runs {
		for _, record := range lifecycle(fmt.Sprintf("run-%d", i)) {
			data, err := record.AppendJSON(nil)
			require.NoError(b, err)
			_, err = bus.js.PublishAsync("events.town."+record.RunID, data)
			require.NoError(b, err)
		}
	}
	<-bus.js.PublishAsyncComplete()
	for b.Loop() {
		w := bus.run(lookBack(10 * runs))
		w.reaches(fmt.Sprintf("run-%d", runs-1), 10)
		b.StopTimer()
		w.stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*10*runs/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRetained holds runs of ten events in a projector: B/run is the memory that one takes.
func BenchmarkRetained(b *testing.B) {
	const runs = 20_000
	for b.Loop() {
		before := heap()
		p := runevents.NewProjector(runevents.ProjectorConfig{MaxRuns: runs})
		for i := range runs {
			_, err := p.Apply(b.Context(), lifecycle(fmt.Sprintf("%036d", i)))
			require.NoError(b, err)
		}
		b.ReportMetric(float64(heap()-before)/runs, "B/run")
		runtime.KeepAlive(p)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
