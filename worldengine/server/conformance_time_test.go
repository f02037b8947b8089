package server_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/server"
)

// backwards is a clock that is a day late and goes back by an hour each time.
func backwards() func() time.Time {
	var mu sync.Mutex
	now := time.Now().Add(-24 * time.Hour)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(-time.Hour)
		return now
	}
}

// TestTheClockOfTheProducerDecidesNothing: emittedAt is the producer's clock, however wrong;
// persistedAt is the append authority's, and windows of time are of it; order is runSeq's alone.
func TestTheClockOfTheProducerDecidesNothing(t *testing.T) {
	t.Parallel()
	began, producer := time.Now().Add(-time.Second), backwards()
	c := connect(t, start(t))
	for _, event := range []runevents.EventType{runevents.RunStarted, "Told", "Noted"} {
		write := written("run-1", event, "", 1)
		write.EmittedAt = runevents.Timestamp(producer())
		c.append("t", write)
	}
	events := c.events("run-1")
	for i, e := range events {
		require.Equal(t, int64(i+1), e.RunSeq)
		require.Less(t, e.EmittedAt, runevents.Timestamp(began.Add(-24*time.Hour)))
		require.Greater(t, e.PersistedAt, runevents.Timestamp(began))
	}
	requireFalling(t, events)
	require.Equal(t, runevents.RunRunning, c.run("run-1").Status)

	window := func(member string, at time.Time) map[string]any {
		return map[string]any{"limit": 10, member: runevents.Timestamp(at)}
	}
	require.Len(t, c.listRuns(window("from", began)), 1, "it was persisted since")
	require.Empty(t, c.listRuns(window("to", began)), "though it was emitted before")
}

// requireFalling checks that events were emitted by a clock that goes back.
func requireFalling(t *testing.T, events []runevents.Record) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(events, func(a, b runevents.Record) int {
		return strings.Compare(b.EmittedAt, a.EmittedAt)
	}))
}

// A clock of the append authority that goes back moves no persistedAt before the last of the town.
func TestPersistedAt_NeverGoesBack(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(config *server.Config) { config.Engine.Now = backwards() }))
	chain := newChain(t, c, "t")
	put := c.history(map[string]any{"townId": "t"})[0].At
	for range 2 {
		o := c.send(chain.next())
		require.Equal(t, handoff.Executed, o.result.Status)
		events := c.events(o.runID)
		requireRun(t, o, events)
		requireFalling(t, events)
		for _, e := range events {
			require.Less(t, e.EmittedAt, put)
			require.Equal(t, put, e.PersistedAt)
		}
		require.Equal(t, runevents.RunSucceeded, c.run(o.runID).Status)
	}
}
