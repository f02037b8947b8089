package runevents_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// TestAnyDeliveryEndsInTheSameSnapshot: any order of any subset with duplicates, in any batches,
// and then a resync.
func TestAnyDeliveryEndsInTheSameSnapshot(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 4))
	for range 250 * *drawnTimes {
		records := anyStream(g)
		want, _ := project(t, records)
		store := storing(records...)
		if n := g.IntN(len(records)); g.IntN(2) == 0 {
			s, _ := project(t, records[:n])
			store.snapshots = append(store.snapshots, deepCopy(t, s))
		}
		w := watch(t, store)
		deliver(w, g, records)
		require.Empty(t, w.Stale(), "the store has everything")
		requireSettled(t, w, want)
	}
}

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried where that takes long")

// TestAnyDeliveryFromAStoreThatIsBehind: events become visible in the store in any order, some
// after later ones.
func TestAnyDeliveryFromAStoreThatIsBehind(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 5))
	for range 100 * *drawnTimes {
		records := ofRun(executedRun(t), identity.RunID)
		for i := range records {
			records[i].RunSeq += g.Int64N(2) + 2*int64(i)
		}
		want, _ := project(t, records)
		visible := map[string]bool{}
		store := storing(records...)
		store.hidden = func(r *runevents.Record) bool { return !visible[r.EventID] }
		w := watch(t, store)
		for _, i := range g.Perm(len(records)) {
			visible[records[i].EventID] = true
			watermark := watermarkOf(w)
			deliver(w, g, records)
			require.GreaterOrEqual(t, watermarkOf(w), watermark)
		}
		w.apply(records...)
		require.Empty(t, w.Stale())
		requireSettled(t, w, want)
	}
}

func deliver(w *watched, g *rand.Rand, records []runevents.Record) {
	delivery := someDelivery(g, records)
	for len(delivery) > 0 {
		n := 1 + g.IntN(len(delivery))
		w.apply(delivery[:n]...)
		delivery = delivery[n:]
		if g.IntN(4) == 0 {
			w.resume()
		}
	}
}

func watermarkOf(w *watched) int64 {
	s, _ := w.Snapshot(identity.RunID)
	return s.LastEventSeq
}

// requireSettled asserts the snapshot after a resync of both modes, and each alert at most once.
func requireSettled(t *testing.T, w *watched, want runevents.Snapshot) {
	t.Helper()
	for _, request := range []runevents.ResyncRequest{
		{Mode: runevents.FromSnapshot, RunID: identity.RunID, SnapshotSeq: watermarkOf(w)},
		{Mode: runevents.Full, RunID: identity.RunID},
	} {
		s, err := w.Resync(t.Context(), request)
		if err != nil {
			require.ErrorIs(t, err, runevents.ErrNotAdvanced)
		}
		require.Equal(t, want, s)
		require.Equal(t, want, w.held(identity.RunID))
	}
	seen := map[string]bool{}
	for _, a := range w.alerts {
		id := string(a.Code) + a.RunID + a.EventID
		require.False(t, seen[id], "%s twice", id)
		seen[id] = true
	}
	for _, eventID := range want.Metadata.IgnoredEvents {
		require.True(t, seen["INVALID_TRANSITION"+identity.RunID+eventID])
	}
}
