package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/memory"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// BenchmarkRead asks for the memory of a town, and of the world, in a log of 100,000 runs.
func BenchmarkRead(b *testing.B) {
	const runs, towns = 100_000, 10
	js, err := jetstream.New(natstest.Connect(b),
		jetstream.WithPublishAsyncMaxPending(runs))
	require.NoError(b, err)
	stream, err := js.CreateStream(b.Context(), worldsettings.StreamConfig("main",
		worldsettings.Settings{HistoryPerTown: runs}, 1))
	require.NoError(b, err)
	log := &records.Log{Log: &commitlog.Log{World: "main", Stream: stream,
		Store: &commitlog.StreamStore{JetStream: js, Stream: stream}}}
	var messages []*nats.Msg
	for _, c := range machinetest.Cases(b) {
		if c.Name != "executed" && c.Name != "stale-epoch" && c.Name != "duplicate" {
			continue
		}
		rec, after := logtest.Judged(b, &c)
		var entry *machine.Town
		if rec.Kind == machine.KindConcluded {
			entry = &machine.Town{State: after}
		}
		msg, err := records.Encode(rec, "", entry)
		require.NoError(b, err)
		messages = append(messages, msg)
	}
	for i := range runs {
		msg := *messages[i%len(messages)]
		msg.Header = nats.Header{}
		for name, values := range messages[i%len(messages)].Header {
			msg.Header[name] = values
		}
		msg.Header.Set(wire.RunIDHeader, fmt.Sprintf("run-%d", i))
		msg.Header.Set(layout.AtHeader, "2026-02-16T10:00:00.000Z")
		token := wire.TownToken(fmt.Sprintf("town-%d", i%towns))
		msg.Subject = layout.LogSubject("main", token)
		if msg.Header.Get(layout.HashHeader) == "" {
			msg.Subject = layout.RefusedSubject("main", token)
		}
		_, err := js.PublishMsgAsync(&msg)
		require.NoError(b, err)
	}
	<-js.PublishAsyncComplete()
	x := indextest.Open(b, log)
	_, err = x.CatchUp(b.Context())
	require.NoError(b, err)
	r := memory.NewReader(log, x)
	for _, town := range []string{"town-0", ""} {
		b.Run(fmt.Sprintf("%q", town), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				m, err := r.Read(b.Context(), scope(town, 3, 4), nil)
				took = append(took, time.Since(begin))
				require.NoError(b, err)
				require.Len(b, m.RecentHistory, 4)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
