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

// backwards is a producer's clock that is a day late and goes back by an hour each time.
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
// persistedAt is the store's, and windows of time are of it; order is runSeq's alone.
func TestTheClockOfTheProducerDecidesNothing(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second)
	c := connect(t, start(t, func(config *server.Config) { config.Engine.Now = backwards() }))
	o := c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.AdvanceProject, "wall")))
	events := c.events(o.runID)
	requireRun(t, o, events)
	var emitted []string
	for _, e := range events {
		emitted = append(emitted, e.EmittedAt)
		require.Less(t, e.EmittedAt, runevents.Timestamp(began.Add(-24*time.Hour)))
		require.Greater(t, e.PersistedAt, runevents.Timestamp(began))
	}
	require.True(t, slices.IsSortedFunc(emitted,
		func(a, b string) int { return strings.Compare(b, a) }))
	require.Equal(t, runevents.RunSucceeded, c.run(o.runID).Status)

	window := func(member string, at time.Time) map[string]any {
		return map[string]any{"limit": 10, member: runevents.Timestamp(at)}
	}
	require.Len(t, c.listRuns(window("from", began)), 1, "it was persisted since")
	require.Empty(t, c.listRuns(window("to", began)), "though it was emitted before")
}
