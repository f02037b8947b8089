package server_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/platform"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// BenchmarkExecute executes handoffs over NATS, 64 in flight over 64 towns, against a real server.
// Its time per operation is the inverse of the rate, and its processor time the sum of server and
// client; for latencies and the ratio to plain request-reply see `handoffctl bench`.
func BenchmarkExecute(b *testing.B) {
	for _, mode := range []server.Sync{server.SyncInterval, server.SyncAlways} {
		b.Run(string(mode), func(b *testing.B) {
			w := newWorld(b, open, func(config *server.Config) { config.Sync = mode })
			c := newCrowd()
			for _, s := range c.states {
				_, err := w.srv.Engine().Put(b.Context(), s, "")
				require.NoError(b, err)
			}
			c.drive(b, w.nc)
		})
	}
}

// crowdTowns is how many towns a crowd has, and how many handoffs it has in flight.
const crowdTowns = 64

// crowd publishes handoffs, one at a time to each of its towns, and knows how they end.
type crowd struct {
	states []town.State
	rules  town.Rules
}

func newCrowd() *crowd {
	c := &crowd{states: make([]town.State, crowdTowns), rules: town.DefaultRules()}
	for i := range c.states {
		c.states[i] = town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: fmt.Sprintf("town-%d", i),
			SideQuests: []town.SideQuest{{ID: "q1", Title: "Scout"}, {ID: "q2", Title: "Escort"}},
			Projects: []town.Project{{ID: "wall", Name: "Wall", Progress: 0.2,
				Status: town.Active}},
		})
	}
	return c
}

// next returns the next handoff to a town.
func (c *crowd) next(i int) (*handoff.Handoff, error) {
	return handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: c.states[i].Snapshot.TownID,
		Priority: 0.5, Reason: "Morale is low.", Args: map[string]string{"talkType": "casual"},
		SnapshotHash: c.states[i].Hash, DecisionEpoch: c.states[i].Epoch(),
		Preconditions: []handoff.Precondition{{Kind: handoff.TalkTypeSupported,
			Expected: "casual"}},
	})
}

// send publishes the next handoff to a town, and reports whether the answer has a run.
func (c *crowd) send(nc *nats.Conn, i int) (bool, error) {
	h, err := c.next(i)
	if err != nil {
		return false, err
	}
	encoded, err := h.MarshalWire()
	if err != nil {
		return false, err
	}
	reply, err := nc.Request(wire.Subject("main", "handoff"), encoded, 10*time.Second)
	if err != nil {
		return false, err
	}
	c.states[i], _ = c.rules.Apply(c.states[i].Snapshot, &h.Proposal)
	return reply.Header.Get(wire.RunIDHeader) != "", nil
}

// drive sends the crowd's b.N handoffs, and hears their live messages. The processor time that it
// reports ends when the last of them was heard.
func (c *crowd) drive(b *testing.B, nc *nats.Conn) {
	var next, wrong, heard atomic.Int64
	_, err := nc.Subscribe(wire.EventsSubject("main", "*"), func(msg *nats.Msg) {
		if bytes.Contains(msg.Data, []byte(`"cause":"handoff"`)) {
			heard.Add(1)
		}
	})
	require.NoError(b, err)
	require.NoError(b, nc.Flush())
	b.SetParallelism(crowdTowns / 2) // times GOMAXPROCS, which is 2 on the machine of the figures
	before := platform.ProcessorTime()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(next.Add(1)-1) % crowdTowns
		for pb.Next() {
			ok, err := c.send(nc, i)
			if err != nil {
				panic(err)
			}
			if !ok {
				wrong.Add(1)
			}
		}
	})
	b.StopTimer()
	require.Zero(b, wrong.Load())
	require.Eventually(b, func() bool { return heard.Load() == int64(b.N) },
		time.Minute, time.Millisecond, "live messages are missing")
	used := platform.ProcessorTime() - before
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/op")
}
