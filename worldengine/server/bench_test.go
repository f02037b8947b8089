package server_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// BenchmarkExecute executes handoffs over NATS, 64 in flight over 64 towns, against a real server
// with sync=interval. Its time per operation is the inverse of the rate; for latencies and the
// ratio to plain request-reply see `handoffctl bench`.
func BenchmarkExecute(b *testing.B) {
	for _, mode := range []server.Sync{server.SyncInterval, server.SyncAlways} {
		b.Run(string(mode), func(b *testing.B) { benchmarkExecute(b, mode) })
	}
}

func benchmarkExecute(b *testing.B, mode server.Sync) {
	const towns = 64
	srv, err := server.Start(b.Context(), server.Config{
		Listen: "127.0.0.1:0", Data: b.TempDir(), Sync: mode, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	b.Cleanup(func() { _ = srv.Close(b.Context()) })
	nc, err := nats.Connect(srv.URL())
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	states := make([]town.State, towns)
	for i := range states {
		states[i] = town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: fmt.Sprintf("town-%d", i),
			SideQuests: []town.SideQuest{{ID: "q1", Title: "Scout"}, {ID: "q2", Title: "Escort"}},
			Projects: []town.Project{{ID: "wall", Name: "Wall", Progress: 0.2,
				Status: town.Active}},
		})
		_, err := srv.Engine().Put(b.Context(), states[i], "")
		require.NoError(b, err)
	}
	var next, wrong atomic.Int64
	b.SetParallelism(towns / 2) // times GOMAXPROCS, which is 2 on the machine of the figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(next.Add(1)-1) % towns
		rules := town.DefaultRules()
		for pb.Next() {
			p := handoff.Proposal{
				Type: handoff.TalkToTownsfolk, ActorID: "mayor-1",
				TownID:   states[i].Snapshot.TownID,
				Priority: 0.5, Reason: "Morale is low.",
				Args:         map[string]string{"talkType": "casual"},
				SnapshotHash: states[i].Hash, DecisionEpoch: states[i].Epoch(),
				Preconditions: []handoff.Precondition{{Kind: handoff.TalkTypeSupported,
					Expected: "casual"}},
			}
			h, err := handoff.New(p)
			if err != nil {
				panic(err)
			}
			encoded, err := h.MarshalWire()
			if err != nil {
				panic(err)
			}
			reply, err := nc.Request(wire.Subject("main", "handoff"), encoded, 10*time.Second)
			if err != nil {
				panic(err)
			}
			after, _ := rules.Apply(states[i].Snapshot, &h.Proposal)
			states[i] = after
			if reply.Header.Get("Run-Id") == "" {
				wrong.Add(1)
			}
		}
	})
	require.Zero(b, wrong.Load())
}
