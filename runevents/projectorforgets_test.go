package runevents_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

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

// A run is forgotten without an alert if the store has discarded the requested events.
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
	require.Equal(t, []string{"PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED 07"}, w.codes(),
		"something was missed")

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
