package runevents_test

import (
	"errors"
	"slices"
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

func watch(
	t *testing.T, store runevents.StateStore, change ...func(*runevents.ProjectorConfig),
) *watched {
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

// apply returns the new snapshots, and asserts that the projector holds the same.
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

// ofRun is the records under another runId.
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
		require.Equal(t, map[int]string{0: "events after 0", 1: "events after 1",
			3: "events after 2"}[len(snapshots)], calls[1])
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
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 05"}, w.codes(),
		"the store is behind")
	require.Equal(t, []string{identity.RunID}, w.Stale())
	require.Empty(t, w.resume())
	require.Len(t, w.codes(), 1, "once")
}

// The events before a gap are applied at once, whether the store has the gap or not.
func TestWhatStandsBeforeAGap(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	w := watch(t, storing())
	require.Empty(t, w.apply(append(records[:3:3], records[9])...))
	require.Equal(t, int64(3), w.held(identity.RunID).LastEventSeq)
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 10"}, w.codes())
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
	require.Equal(t, []string{"snapshot up to 2", "events after 0"},
		store.calls()[4:], "asked each time")

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

// A late event is projected together with the events after it.
func TestAnEventThatTheStoreShowedLate(t *testing.T) {
	t.Parallel()
	records := executedRun(t)
	store := storing(records...)
	store.hidden = func(r *runevents.Record) bool { return r.RunSeq == 3 || r.RunSeq > 4 }
	w := watch(t, store)
	w.apply(records[:2]...)
	w.apply(records[3])
	require.Equal(t, runevents.StepRunning, w.held(identity.RunID).Steps[0].Status,
		"3 looks like a natural gap")
	require.Equal(t, int64(4), w.held(identity.RunID).LastEventSeq)
	store.calls()

	require.Empty(t, w.apply(records[2]), "3 was there, but the store has it not yet")
	require.Len(t, w.Stale(), 1)
	require.Empty(t, w.resume())
	store.hidden = upTo(4)
	want, _ := project(t, records[:4])
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
	s, err = w.Resync(t.Context(), runevents.ResyncRequest{
		Mode: runevents.FromSnapshot, RunID: identity.RunID, SnapshotSeq: 4,
	})
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
