package server_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
// persistedAt is the append authority's, and windows of time are of it; order is runSeq's alone.
func TestTheClockOfTheProducerDecidesNothing(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second)
	c := connect(t, start(t))
	c.put(snapshot("t"), "")
	late := backwards()
	var writes []runevents.Write
	for _, e := range []runevents.EventType{runevents.RunStarted, "Noted", runevents.RunCompleted} {
		w := written("theirs", e, "", 1)
		w.EmittedAt = runevents.Timestamp(late())
		writes = append(writes, w)
	}
	c.append("t", writes...)
	for i, e := range c.events("theirs") {
		require.Equal(t, writes[i].EventID, e.EventID)
		require.Equal(t, writes[i].EmittedAt, e.EmittedAt)
		require.Greater(t, e.PersistedAt, runevents.Timestamp(began))
	}
	require.Equal(t, runevents.RunSucceeded, c.run("theirs").Status)

	window := func(member string, at time.Time) map[string]any {
		return map[string]any{"limit": 10, member: runevents.Timestamp(at)}
	}
	require.Len(t, c.listRuns(window("from", began)), 1, "it was persisted since")
	require.Empty(t, c.listRuns(window("to", began)), "though it was emitted before")
}

// TestPersistedAt_ClockGoesBack: the engine's clock is the append authority's too; if it goes back,
// persistedAt stays where it was, in the run and in the town.
func TestPersistedAt_ClockGoesBack(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, func(config *server.Config) { config.Engine.Now = backwards() }))
	chain := newChain(t, c, "t")
	var emitted, persisted []string
	for range 3 {
		o := c.send(chain.next())
		events := c.events(o.runID)
		requireRun(t, o, events)
		for _, e := range events {
			emitted, persisted = append(emitted, e.EmittedAt), append(persisted, e.PersistedAt)
		}
	}
	require.True(t, slices.IsSortedFunc(emitted,
		func(a, b string) int { return strings.Compare(b, a) }))
	require.True(t, slices.IsSorted(persisted), persisted)
}
