package runevents_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestLag(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	noon := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	for i := range records {
		records[i].PersistedAt = runevents.Timestamp(
			noon.Add(time.Duration(i) * 100 * time.Millisecond))
	}
	store := storing()
	w := watch(t, store)
	w.now = noon.Add(time.Hour)
	w.Behind(noon)
	require.Equal(t, time.Hour, w.Lag())
	require.Empty(t, w.codes(), "there is no event to tell it by")
	w.Behind(time.Time{})
	require.Zero(t, w.Lag())
	w.apply(records[:3]...)
	require.Zero(t, w.Lag(), "nothing waits")

	w.now = noon.Add(5300 * time.Millisecond)
	w.Behind(noon.Add(300 * time.Millisecond))
	require.Equal(t, 5*time.Second, w.Lag())
	require.Empty(t, w.codes(), "just not too high")
	w.now = w.now.Add(time.Millisecond)
	require.Equal(t, 5001*time.Millisecond, w.Lag(), "it grows by itself")
	w.apply(records[3])
	w.now = w.now.Add(time.Second)
	w.apply(records[4])
	require.Equal(t, []string{"PROJECTOR_LAG_HIGH 04"}, w.codes(), "once, until it has been lower")
	require.Equal(t, runevents.P2, w.alerts[0].Severity)
	require.Equal(t, records[3].PersistedAt, w.alerts[0].PersistedAt)
	require.Equal(t, int64(4), w.alerts[0].RunSeq)
	require.Equal(t, "projections are 5.001s behind, more than 5s", w.alerts[0].Message)
	require.Equal(t, runevents.Timestamp(noon.Add(5301*time.Millisecond)), w.alerts[0].At)

	w.now = noon.Add(-time.Hour)
	require.Zero(t, w.Lag(), "never negative, whatever the clocks")
	w.now = noon.Add(7 * time.Second)
	w.Behind(time.Time{})
	w.Behind(noon.Add(time.Second))
	require.Equal(t, []string{"PROJECTOR_LAG_HIGH 04", "PROJECTOR_LAG_HIGH 05"}, w.codes())
}

func TestTheLagOfAPausedRun(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	for i := range records {
		records[i].PersistedAt = runevents.Timestamp(time.Date(2026, 2, 16, 10, 0, i, 0, time.UTC))
	}
	store := storing(records[:2]...)
	w := watch(t, store)
	w.now = time.Date(2026, 2, 16, 10, 0, 10, 0, time.UTC)
	w.apply(records[:2]...)
	w.apply(records[9])
	require.Equal(t, time.Second, w.Lag(), "it waits for 10")
	w.now = w.now.Add(time.Minute)
	require.Equal(t, 61*time.Second, w.Lag())
	w.resume()
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 10",
		"PROJECTOR_LAG_HIGH 10"},
		w.codes())
	store.records = records
	w.resume()
	require.Zero(t, w.Lag())
	require.Empty(t, w.Stale())
}

// The lag is the longest wait of all runs; an event without a valid time has none.
func TestTheLagOfManyPausedRuns(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	w := watch(t, storing())
	w.now = noon
	for i, at := range []string{"soon", runevents.Timestamp(noon.Add(-time.Minute)),
		runevents.Timestamp(noon), runevents.Timestamp(noon), runevents.Timestamp(noon)} {
		r := ofRun(executedRun(t)[1:2], string(rune('a'+i)))
		r[0].PersistedAt = at
		w.apply(r...)
		require.Equal(t, map[bool]time.Duration{true: time.Minute}[i > 0], w.Lag())
	}
}

// gate is a store that waits in each call until it is let through.
type gate struct {
	*fakeStore
	entered, open chan struct{}
}

func (g gate) Events(
	ctx context.Context, runID string, afterSeq int64,
) ([]runevents.Record, error) {
	g.entered <- struct{}{}
	<-g.open
	return g.fakeStore.Events(ctx, runID, afterSeq)
}

func TestReadersDoNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := gate{storing(records...), make(chan struct{}), make(chan struct{})}
	w := watch(t, store)
	w.apply(records[:2]...)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := w.Apply(context.Background(), records[9:]); err != nil {
				t.Error(err)
			}
		})
	}
	<-store.entered
	require.Equal(t, int64(2), w.held(identity.RunID).LastEventSeq)
	require.Empty(t, w.Stale())
	w.Lag()
	close(store.open)
	all.Wait()
	require.Equal(t, int64(10), w.held(identity.RunID).LastEventSeq)
}
