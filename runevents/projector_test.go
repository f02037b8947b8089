package runevents_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// watched is a projector whose clock stands still and whose alerts are kept.
type watched struct {
	*runevents.Projector
	t      *testing.T
	now    time.Time
	alerts []runevents.Alert
}

func watch(t *testing.T, store runevents.StateStore, change ...func(*runevents.ProjectorConfig)) *watched {
	w := &watched{t: t, now: time.Date(2026, 2, 16, 10, 0, 1, 0, time.UTC)}
	config := runevents.ProjectorConfig{
		Store: store,
		Now:   func() time.Time { return w.now },
		Alert: func(a runevents.Alert) { w.alerts = append(w.alerts, a) },
	}
	for _, f := range change {
		f(&config)
	}
	w.Projector = runevents.NewProjector(config)
	return w
}

// apply returns the new snapshots, which are what the projector then holds, if it holds them.
func (w *watched) apply(records ...runevents.Record) []runevents.Snapshot {
	w.t.Helper()
	snapshots, err := w.Apply(w.t.Context(), records)
	require.NoError(w.t, err)
	for _, s := range snapshots {
		if held, ok := w.Snapshot(s.RunID); ok {
			require.Equal(w.t, s, held)
		}
	}
	return snapshots
}

func (w *watched) resume() []runevents.Snapshot {
	w.t.Helper()
	snapshots, err := w.ResumeStale(w.t.Context())
	require.NoError(w.t, err)
	return snapshots
}

func (w *watched) held(runID string) runevents.Snapshot {
	w.t.Helper()
	s, ok := w.Snapshot(runID)
	require.True(w.t, ok)
	return s
}

func (w *watched) codes() (codes []string) {
	for _, a := range w.alerts {
		codes = append(codes, string(a.Code)+" "+a.EventID[len(a.EventID)-2:])
	}
	return codes
}

// ofRun is the records as those of another run.
func ofRun(records []runevents.Record, runID string) []runevents.Record {
	records = slices.Clone(records)
	for i := range records {
		r := &records[i]
		r.RunID, r.EventID = runID, runID+r.EventID
		r.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
			RunID: runID, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
			EventType: r.EventType, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
		})
	}
	return records
}

func TestRecordsThatFollowEachOtherNeedNoStore(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	for batch := 1; batch <= len(records); batch++ {
		store := storing()
		w := watch(t, store)
		for i := 0; i < len(records); i += batch {
			part := records[i:min(i+batch, len(records))]
			snapshots := w.apply(part...)
			require.Len(t, snapshots, 1)
			want, _ := project(t, records[:i+len(part)])
			require.Equal(t, want, snapshots[0])
			require.Empty(t, w.apply(part...), "redelivered: nothing new")
			require.Empty(t, w.apply(records[0]))
		}
		require.Empty(t, store.calls())
		require.Empty(t, w.alerts)
		require.Empty(t, w.Stale())
	}
}

func TestRunsAreProjectedApart(t *testing.T) {
	t.Parallel()
	a, b := ofRun(executedRun(t), "a"), ofRun(courses["failed"].tell(t), "b")
	w := watch(t, storing())
	var both []runevents.Record
	for i := range a {
		both = append(both, b[i], a[i])
	}
	snapshots := w.apply(both...)
	require.Len(t, snapshots, 2)
	require.Equal(t, "b", snapshots[0].RunID, "in the order in which they occur")
	require.Equal(t, runevents.RunHasFailed, snapshots[0].Status)
	require.Equal(t, runevents.RunSucceeded, snapshots[1].Status)
	_, ok := w.Snapshot("c")
	require.False(t, ok)
}

func TestASkippedEventIsFetched(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	want, _ := project(t, records[:5])
	for _, snapshots := range [][]int{nil, {1}, {1, 2, 4}} {
		store := storing(records[:5]...)
		for _, n := range snapshots {
			s, _ := project(t, records[:n])
			store.snapshots = append(store.snapshots, s)
		}
		w := watch(t, store)
		w.apply(records[:2]...)
		require.Equal(t, []runevents.Snapshot{want}, w.apply(records[4]))
		calls := store.calls()
		require.Equal(t, "snapshot up to 2", calls[0])
		require.Equal(t, map[int]string{0: "events after 0", 1: "events after 1", 3: "events after 2"}[len(snapshots)], calls[1])
		require.Empty(t, w.Stale())

		require.Len(t, w.alerts, 1)
		a := w.alerts[0]
		require.NotEmpty(t, a.Message)
		a.Message = ""
		require.Equal(t, runevents.Alert{
			Code: "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED", Severity: "P2", RunID: identity.RunID,
			TenantID: "default", ProjectID: "main", EnvironmentID: "local",
			EventID: records[4].EventID, EventType: "StepCompleted", StepID: "stale-check",
			LogicalAttemptID: 1, RunSeq: 5, PersistedAt: records[4].PersistedAt,
			At: "2026-02-16T10:00:01.000Z",
		}, a)
		w.apply(records[5]) // It goes on incrementally.
		require.Empty(t, store.calls())
	}
}

func TestAFirstEventThatIsNotTheFirstIsAFullResync(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	w := watch(t, store)
	want, _ := project(t, records)
	require.Equal(t, []runevents.Snapshot{want}, w.apply(records[4]))
	require.Equal(t, []string{"events after 0"}, store.calls())
	require.Empty(t, w.codes(), "nobody has seen anything skipped")
	require.Empty(t, w.apply(records...), "all of it was in the store")

	store.hidden = upTo(3)
	w = watch(t, store)
	require.Empty(t, w.apply(records[4]))
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 05"}, w.codes(), "the store is behind")
	require.Equal(t, []string{identity.RunID}, w.Stale())
	require.Empty(t, w.resume())
	require.Len(t, w.codes(), 1, "once")
}

// TestAGapThatTheStoreHasTooIsNatural: the watermark advanced, so the run goes on behind it.
func TestAGapThatTheStoreHasTooIsNatural(t *testing.T) {
	t.Parallel()
	records := slices.Delete(executedRun(t), 2, 3)
	store := storing(records...)
	store.hidden = upTo(4)
	w := watch(t, store)
	w.apply(records[:2]...)
	require.Equal(t, int64(4), w.apply(records[2])[0].LastEventSeq)
	require.Empty(t, w.Stale())
	require.Len(t, w.apply(records[3:]...), 1)
	want, _ := project(t, records)
	require.Equal(t, want, w.held(identity.RunID))
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 04"}, w.codes())
}

func TestARunStaysPausedUntilTheWatermarkAdvances(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = upTo(2)
	w := watch(t, store)
	w.apply(records[:2]...)
	before := w.held(identity.RunID)
	require.Empty(t, w.apply(records[4]))
	require.Equal(t, []string{identity.RunID}, w.Stale())
	require.Equal(t, before, w.held(identity.RunID))
	require.Equal(t, runevents.RunRunning, before.Status, "stale is no status of the run")

	require.Empty(t, w.apply(records[2:6]...), "paused: even what follows waits for a resync")
	require.Empty(t, w.resume())
	require.Equal(t, before, w.held(identity.RunID))
	require.Equal(t, []string{"snapshot up to 2", "events after 0"}, store.calls()[4:], "asked each time")

	store.hidden = upTo(3)
	require.Empty(t, w.resume(), "advanced, but 5 does not follow 3")
	require.Equal(t, int64(3), w.held(identity.RunID).LastEventSeq)
	require.Len(t, w.Stale(), 1)

	store.hidden = upTo(4)
	want, _ := project(t, records[:5])
	require.Equal(t, []runevents.Snapshot{want}, w.resume(), "5 was at hand and follows 4")
	require.Empty(t, w.Stale())
	require.Empty(t, w.resume())
	w.apply(records[5:]...)
	want, _ = project(t, records)
	require.Equal(t, want, w.held(identity.RunID))
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 05"}, w.codes(), "once")
}

func TestTheNextEventsOfAPausedRunTryAgain(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = upTo(2)
	w := watch(t, store)
	w.apply(records[:2]...)
	w.apply(records[3])
	store.hidden = nil
	want, _ := project(t, records)
	require.Equal(t, []runevents.Snapshot{want}, w.apply(records[4]))
	require.Empty(t, w.Stale())
}

func TestAStoreThatFailsLeavesTheRunPausedAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	a, b, c := ofRun(executedRun(t), "a"), ofRun(executedRun(t), "b"), ofRun(executedRun(t), "c")
	store := storing(a...)
	store.err = errors.New("the disk is gone")
	w := watch(t, store)
	c[0].RunSeq = 0
	snapshots, err := w.Apply(t.Context(), slices.Concat(a[3:5], c, b))
	require.ErrorIs(t, err, store.err)
	require.ErrorIs(t, err, runevents.ErrNoRunSeq)
	require.Len(t, snapshots, 1)
	require.Equal(t, "b", snapshots[0].RunID)
	require.Equal(t, []string{"a"}, w.Stale())
	_, ok := w.Snapshot("c")
	require.False(t, ok)

	_, err = w.ResumeStale(t.Context())
	require.ErrorIs(t, err, store.err)
	store.err = nil
	require.Equal(t, int64(10), w.resume()[0].LastEventSeq)
}

func TestAStoreThatIsBehindNeverTakesARunBack(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = upTo(3)
	w := watch(t, store)
	w.apply(records[:5]...)
	want := w.held(identity.RunID)
	w.apply(records[7])
	require.Equal(t, want, w.held(identity.RunID))
	require.Len(t, w.Stale(), 1)
}

// TestAnEventThatTheStoreShowedLate: what was projected without it is projected again with it.
func TestAnEventThatTheStoreShowedLate(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = func(r *runevents.Record) bool { return r.RunSeq == 3 || r.RunSeq > 5 }
	w := watch(t, store)
	w.apply(records[:2]...)
	w.apply(records[3])
	require.Equal(t, runevents.StepRunning, w.held(identity.RunID).Steps[0].Status, "3 looks like a natural gap")
	require.Equal(t, int64(5), w.held(identity.RunID).LastEventSeq)
	store.calls()

	require.Empty(t, w.apply(records[2]), "3 was there, but the store has it not yet")
	require.Len(t, w.Stale(), 1)
	require.Empty(t, w.resume())
	store.hidden = upTo(5)
	want, _ := project(t, records[:5])
	require.Equal(t, []runevents.Snapshot{want}, w.resume(), "the watermark advanced from before 3")
	require.Equal(t, []string{"events after 0", "events after 0", "events after 0"}, store.calls())
	require.Empty(t, w.apply(records[2]))
	require.Empty(t, w.Stale())
	require.Equal(t, []string{
		"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 04", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 03",
	}, w.codes())
}

func TestAskingForAResync(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = upTo(4)
	w := watch(t, store)
	full := runevents.ResyncRequest{Mode: runevents.Full, RunID: identity.RunID}

	s, err := w.Resync(t.Context(), full)
	require.NoError(t, err)
	want, _ := project(t, records[:4])
	require.Equal(t, want, s)
	require.Equal(t, want, w.held(identity.RunID))

	s, err = w.Resync(t.Context(), full)
	require.ErrorIs(t, err, runevents.ErrNotAdvanced)
	require.Equal(t, want, s)
	require.Empty(t, w.Stale(), "it was not paused before")

	w.apply(records[6])
	require.Len(t, w.Stale(), 1)
	_, err = w.Resync(t.Context(), full)
	require.ErrorIs(t, err, runevents.ErrNotAdvanced)
	require.Len(t, w.Stale(), 1)
	store.hidden = nil
	s, err = w.Resync(t.Context(), runevents.ResyncRequest{Mode: runevents.FromSnapshot, RunID: identity.RunID, SnapshotSeq: 4})
	require.NoError(t, err)
	require.Equal(t, int64(10), s.LastEventSeq)
	require.Empty(t, w.Stale())

	_, err = w.Resync(t.Context(), runevents.ResyncRequest{Mode: "HALF", RunID: identity.RunID})
	require.ErrorIs(t, err, runevents.ErrResyncMode)
	_, err = w.Resync(t.Context(), runevents.ResyncRequest{Mode: runevents.Full, RunID: "unknown"})
	require.ErrorIs(t, err, runevents.ErrNotAdvanced)
	_, ok := w.Snapshot("unknown")
	require.False(t, ok, "nothing is held of a run that is not")
}

func TestAlertsAreRaisedOnce(t *testing.T) {
	t.Parallel()
	records := told(of("RunStarted"), of("StepCompleted", "a"), of("RunResumed"), of("RunCompleted"), of("RunPaused"))
	store := storing(records...)
	w := watch(t, store, func(c *runevents.ProjectorConfig) { c.MaxRuns = 1 })
	want := []string{
		"INVALID_TRANSITION 02", "PROJECTOR_CAUSAL_VIOLATION 02", "INVALID_TRANSITION 03", "INVALID_TRANSITION 05",
	}
	w.apply(records...)
	require.Equal(t, want, w.codes())
	require.Equal(t, "2026-02-16T10:00:01.000Z", w.alerts[0].At)
	w.apply(records...)
	_, err := w.Resync(t.Context(), runevents.ResyncRequest{Mode: runevents.Full, RunID: identity.RunID})
	require.ErrorIs(t, err, runevents.ErrNotAdvanced)
	w.apply(ofRun(executedRun(t), "another")...)
	_, ok := w.Snapshot(identity.RunID)
	require.False(t, ok, "forgotten")
	w.apply(records...)
	require.Equal(t, want, w.codes())

	w.apply(ofRun(records, "b")...)
	require.Len(t, w.alerts, 8, "another run, another alert")
}

func TestTheMemoryOfAlertsIsBounded(t *testing.T) {
	t.Parallel()
	w := watch(t, storing(), func(c *runevents.ProjectorConfig) { c.MaxRuns, c.MaxAlerts = 1, 3 })
	invalid := told(of("RunPaused"))
	for i := range 10 {
		w.apply(ofRun(invalid, fmt.Sprint(i))...)
	}
	require.Len(t, w.alerts, 10)
	for i := 9; i >= 7; i-- {
		w.apply(ofRun(invalid, fmt.Sprint(i))...)
	}
	require.Len(t, w.alerts, 10, "the last three are remembered")
	w.apply(ofRun(invalid, "0")...)
	require.Len(t, w.alerts, 11)
}

// A run of which the store has discarded what is asked for is let go of, without an alert about it.
func TestADiscardedRunIsForgotten(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing()
	w := watch(t, store)
	discarded := fmt.Errorf("of that run: %w", runevents.ErrDiscarded)

	store.err = discarded
	w.apply(ofRun(records, "a")[6:8]...)
	w.apply(ofRun(records, "a")[8:]...)
	w.holds()
	require.Empty(t, w.codes(), "its beginning was never seen")

	w.apply(ofRun(records, "b")[:3]...)
	w.apply(ofRun(records, "b")[6:]...)
	w.holds()
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 07"}, w.codes(), "something was missed")

	store.err = nil
	w.apply(ofRun(records, "c")[6:]...)
	w.holds("c")
	before := w.codes()
	store.err = discarded
	w.resume()
	w.holds()
	require.Empty(t, w.Stale())
	require.Equal(t, before, w.codes())
}

func TestTheRunThatWasLongestWithoutEventsIsForgotten(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(ofRun(records, "a")...)
	w := watch(t, store, func(c *runevents.ProjectorConfig) { c.MaxRuns = 2 })
	w.apply(ofRun(records, "a")[:2]...)
	w.apply(ofRun(records, "b")[:2]...)
	w.apply(ofRun(records, "a")[2:4]...)
	w.holds("a", "b")
	w.apply(ofRun(records, "c")[1]) // The store does not know it: it is held as paused.
	w.holds("a", "c")
	require.Equal(t, []string{"c"}, w.Stale())
	w.apply(ofRun(records, "b")[:1]...)
	w.holds("b", "c")
	store.hidden = upTo(5)
	w.apply(ofRun(records, "a")[4])
	w.holds("a", "b")
	require.Empty(t, w.Stale(), "forgotten with its run")
	require.Len(t, w.held("a").Steps, 2, "read from the store again")
}

// holds asserts which of the runs a, b and c are held.
func (w *watched) holds(want ...string) {
	w.t.Helper()
	for _, runID := range []string{"a", "b", "c"} {
		_, ok := w.Snapshot(runID)
		require.Equal(w.t, slices.Contains(want, runID), ok, runID)
	}
}

func TestRunsThatHaveEndedAreForgottenFirst(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	w := watch(t, storing(), func(c *runevents.ProjectorConfig) { c.MaxRuns = 2 })
	w.apply(ofRun(records, "a")[:2]...)
	w.apply(ofRun(records, "b")...)
	w.holds("a", "b")
	w.apply(ofRun(records, "c")...)
	w.holds("a", "c")
	w.apply(ofRun(records, "b")[:2]...)
	w.holds("a", "b")
	w.apply(ofRun(records, "c")...)
	w.holds("a", "b")
	w.apply(ofRun(records, "a")[2:]...)
	w.apply(ofRun(records, "c")[:2]...)
	w.holds("b", "c")
}

func TestLag(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	noon := time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)
	for i := range records {
		records[i].PersistedAt = runevents.Timestamp(noon.Add(time.Duration(i) * 100 * time.Millisecond))
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
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 10", "PROJECTOR_LAG_HIGH 10"}, w.codes())
	store.records = records
	w.resume()
	require.Zero(t, w.Lag())
	require.Empty(t, w.Stale())
}

// TestAnyDeliveryEndsInTheSameSnapshot: any order of any subset with duplicates, in any batches,
// and then a resync.
func TestAnyDeliveryEndsInTheSameSnapshot(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
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

// TestAnyDeliveryFromAStoreThatIsBehind: events become visible in the store in any order, some
// after later ones.
func TestAnyDeliveryFromAStoreThatIsBehind(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 5))
	for range 1000 {
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

// gate is a store that waits in each call until it is let through.
type gate struct {
	*fakeStore
	entered, open chan struct{}
}

func (g gate) Events(ctx context.Context, runID string, afterSeq int64) ([]runevents.Record, error) {
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

func TestTheDefaultsOfAProjector(t *testing.T) {
	t.Parallel()
	p := runevents.NewProjector(runevents.ProjectorConfig{Store: storing()})
	_, err := p.Apply(t.Context(), told(of("RunPaused"), of("RunStarted"), of("RunResumed")))
	require.NoError(t, err)
	p.Behind(time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC))
	require.Greater(t, p.Lag(), time.Hour, "the clock is the machine's")
	_, ok := p.Snapshot(identity.RunID)
	require.True(t, ok)
}

func TestEveryAlertHasASeverity(t *testing.T) {
	t.Parallel()
	r := told(on("StepFailed", "a", 2))[0]
	for code, want := range map[runevents.AlertCode]runevents.Severity{
		"INVALID_TRANSITION": "P2", "PROJECTOR_LAG_HIGH": "P2", "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED": "P2",
		"PROJECTOR_CAUSAL_VIOLATION": "P3", "EVENT_BUS_DELIVERY_FAILED": "P1", "PAUSE_DRAIN_TIMEOUT": "P3",
		"PLUGIN_LATE_ANSWER": "P1", "PLUGIN_STATE_INVALID": "P2", "APPLY_IN_DOUBT": "P1",
		"LOG_LOST": "P1",
	} {
		require.Equal(t, runevents.Alert{
			Code: code, Severity: want, RunID: r.RunID, TenantID: r.TenantID, ProjectID: r.ProjectID,
			EnvironmentID: r.EnvironmentID, EventID: r.EventID, EventType: "StepFailed", StepID: "a",
			LogicalAttemptID: 2, RunSeq: 1, PersistedAt: r.PersistedAt, Message: "m",
		}, runevents.NewAlert(code, &r, "m"))
	}
}

// Two alerts are the same by their code, their run, and what in it they are about.
func TestTheIDOfAnAlert(t *testing.T) {
	t.Parallel()
	a := runevents.Alert{Code: runevents.ApplyInDoubt, RunID: "r", DeadLetter: "d"}
	require.Equal(t, "APPLY_IN_DOUBT|r|d", a.ID())
	a.HandoffID = "h"
	require.Equal(t, "APPLY_IN_DOUBT|r|h", a.ID())
	a.EventID = "e"
	require.Equal(t, "APPLY_IN_DOUBT|r|e", a.ID())
}
