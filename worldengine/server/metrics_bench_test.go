package server_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// load drives a server: 64 handoffs in flight, each town's one after the other.
type load struct {
	b      *testing.B
	srv    *server.Server
	nc     *nats.Conn
	states []town.State
}

func newLoad(b *testing.B, change ...func(*server.Config)) *load {
	b.Helper()
	srv := start(b, change...)
	nc, err := nats.Connect(srv.URL())
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	l := &load{b: b, srv: srv, nc: nc, states: make([]town.State, 64)}
	for i := range l.states {
		l.states[i] = town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion,
			TownID: fmt.Sprintf("town-%d", i)})
		_, err := srv.Engine().Put(b.Context(), l.states[i], "")
		require.NoError(b, err)
	}
	return l
}

// run executes n handoffs a town and returns the processor time of one, in microseconds.
func (l *load) run(n int) float64 {
	before := l.srv.Engine().Stats().ProcessorMs
	var towns sync.WaitGroup
	for i := range l.states {
		towns.Go(func() {
			for range n {
				l.next(i)
			}
		})
	}
	towns.Wait()
	return float64(l.srv.Engine().Stats().ProcessorMs-before) * 1000 / float64(n*len(l.states))
}

func (l *load) next(i int) {
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: l.states[i].Snapshot.TownID,
		Reason: "Morale is low.",
		Args:   map[string]string{"talkType": "casual"}, SnapshotHash: l.states[i].Hash,
		DecisionEpoch: l.states[i].Epoch(),
	})
	if err != nil {
		panic(err)
	}
	encoded, err := h.MarshalWire()
	if err != nil {
		panic(err)
	}
	if reply, err := l.nc.Request(wire.Subject("main", "handoff"), encoded,
		10*time.Second); err != nil || reply.Header.Get("Run-Id") == "" {
		panic(fmt.Sprintf("no result: %v: %+v", err, reply))
	}
	rules := town.DefaultRules()
	l.states[i], _ = rules.Apply(l.states[i].Snapshot, &h.Proposal)
}

// BenchmarkMetricsOfAHandoff measures what metrics cost a handoff, client included: rounds against
// a server with them, which is scraped once a round, and against one without take turns in one
// process. The figures are medians of the processor time, and the difference is the median of the
// pairs'.
func BenchmarkMetricsOfAHandoff(b *testing.B) {
	with, without := newLoad(b, withMetrics), newLoad(b)
	const handoffs = 64
	with.run(handoffs)
	without.run(handoffs)
	var on, off, more []float64
	b.ResetTimer()
	for i := range b.N {
		var a, z float64
		measureWith := func() { a = with.run(handoffs); scrape(b, with.srv) }
		if i%2 == 0 {
			measureWith()
			z = without.run(handoffs)
		} else {
			z = without.run(handoffs)
			measureWith()
		}
		on, off, more = append(on, a), append(off, z), append(more, 100*(a-z)/z)
	}
	b.ReportMetric(median(on), "µs-with")
	b.ReportMetric(median(off), "µs-without")
	b.ReportMetric(median(more), "%-more")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
