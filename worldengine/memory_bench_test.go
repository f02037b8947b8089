package worldengine

import (
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// BenchmarkRunsInTheStream has an event stream keep 100,000 runs, of one event or of ten: B/run is
// the memory that the NATS server takes for one.
func BenchmarkRunsInTheStream(b *testing.B) {
	b.Run("events=1", func(b *testing.B) { benchmarkRunsInTheStream(b, 1) })
	b.Run("events=10", func(b *testing.B) { benchmarkRunsInTheStream(b, 10) })
}

func benchmarkRunsInTheStream(b *testing.B, events int) {
	const runs = 100_000
	js, err := jetstream.New(natstest.Connect(b))
	require.NoError(b, err)
	config := commitlog.EventStreamConfig("main", time.Hour, wire.DefaultEventLimit, 1)
	body := make([]byte, 600)
	for b.Loop() {
		_, err = js.CreateStream(b.Context(), config)
		require.NoError(b, err)
		before := liveHeap()
		for range runs {
			subject := wire.EventSubject("main", "town-threatened", uuid.NewString())
			for range events {
				_, err := js.PublishAsync(subject, body)
				require.NoError(b, err)
			}
		}
		<-js.PublishAsyncComplete()
		b.ReportMetric(float64(liveHeap()-before)/runs, "B/run")
		require.NoError(b, js.DeleteStream(b.Context(), config.Name))
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
