package systemtest_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/town/towntest"
	"worldengine/worldengine/wire"
)

// alertedWorld is a checkedWorld whose alerts are kept, each as its code and its runId.
func alertedWorld(t *testing.T, config worldengine.Config) (*checkedWorld, func() []string) {
	t.Helper()
	raised := make(chan string, 100)
	config.OnAlert = func(a runevents.Alert) { raised <- string(a.Code) + " " + a.RunID }
	w := newCheckedWorld(t, config)
	return w, func() []string {
		all := []string{}
		for len(raised) > 0 {
			all = append(all, <-raised)
		}
		return all
	}
}

// talks has handoffs of one town executed, each a run of ten events, and returns their runs.
func (w *checkedWorld) talks(n int) []string {
	w.t.Helper()
	state := towntest.Threatened(func(s *town.Snapshot) { s.TownID = "t" })
	w.put(state, "")
	var page []string
	for range n {
		h := w.send(proposal(state, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
		receipt, err := w.engine.Receipt(w.t.Context(), h.Proposal.TownID, h.IdempotencyKey)
		require.NoError(w.t, err)
		page = append(page, receipt.RunID)
		next, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
		require.Empty(w.t, reason)
		state = next
	}
	w.clean() // which waits for the derived streams
	return page
}

// listed returns the ids of the runs of a list.
func (w *checkedWorld) listed() []string {
	w.t.Helper()
	page, err := w.engine.Runs().List(w.t.Context(), runs.RunFilter{}, 0, 10)
	require.NoError(w.t, err)
	ids := []string{}
	for i := range page.Runs {
		ids = append(ids, page.Runs[i].RunID)
	}
	return ids
}

// unknown asserts that nothing is told of a run to those who ask for all of it, or for what is
// behind one of some events.
func (w *checkedWorld) unknown(runID string, after ...int64) {
	w.t.Helper()
	_, err := w.engine.Runs().Get(w.t.Context(), runID)
	require.ErrorIs(w.t, err, runs.ErrUnknownRun)
	for _, after := range append(after, 0) {
		_, err = w.engine.Runs().Events(w.t.Context(), runID, after, 10)
		require.ErrorIs(w.t, err, runs.ErrUnknownRun, "after %d", after)
	}
}

// toldFrom asserts that of a run the events from one to the last are told, to those who know what
// is before.
func (w *checkedWorld) toldFrom(runID string, first, last int64) {
	w.t.Helper()
	w.unknown(runID, first-2)
	for _, after := range []int64{first - 1, first, last - 1, last, math.MaxInt64} {
		page, err := w.engine.Runs().Events(w.t.Context(), runID, after, 1000)
		require.NoError(w.t, err, "after %d", after)
		require.Equal(w.t, last, page.LastEventSeq)
		require.Len(w.t, page.Events, int(max(last-after, 0)), "after %d", after)
	}
}

// firstEvent returns the sequence of the first run event that is kept.
func (w *checkedWorld) firstEvent() uint64 {
	w.t.Helper()
	info, err := w.events().Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.FirstSeq
}

// deleteEvent takes an event of a run away, as nobody may.
func (w *checkedWorld) deleteEvent(runID string, runSeq int) {
	w.t.Helper()
	seq := uint64(0)
	for range runSeq {
		msg, err := w.events().GetMsg(w.t.Context(), seq+1,
			jetstream.WithGetMsgSubject(wire.EventSubject("main", "*", runID)))
		require.NoError(w.t, err)
		seq = msg.Sequence
	}
	require.NoError(w.t, w.events().DeleteMsg(w.t.Context(), seq))
}

// A run that the limit cuts in its middle is no longer kept, but for those who have read what is
// gone, and no alarm.
func TestTheLimitOfEventsCutsARun(t *testing.T) {
	w, alerts := alertedWorld(t, worldengine.Config{EventLimit: 15})
	page := w.talks(3)
	require.Equal(t, uint64(16), w.firstEvent(), "in the middle of the second run")
	w.unknown(page[0], 8, 10, 100)
	w.toldFrom(page[1], 6, 10)
	require.Equal(t, []string{page[2]}, w.listed())
	run, err := w.engine.Runs().Get(t.Context(), page[2])
	require.NoError(t, err)
	require.Equal(t, runevents.RunSucceeded, run.Status)
	require.Equal(t, runevents.Consistent, run.Metadata.Consistency)
	events, err := w.engine.Runs().Events(t.Context(), page[2], 8, 10)
	require.NoError(t, err)
	require.Len(t, events.Events, 2)
	require.Empty(t, alerts())
}

// So is one whose first events have expired before its later ones.
func TestARunExpiresInItsMiddle(t *testing.T) {
	w, alerts := alertedWorld(t, worldengine.Config{EventRetention: 2 * time.Second})
	write := runevents.Write{
		EmittedAt: "2026-02-16T10:00:00.000Z", RunID: "planner-1", TenantID: "default",
		ProjectID:     "main",
		EnvironmentID: "local", PlanID: "plan", PlanVersion: "1", EngineAttemptID: 1,
	}
	add := func(event runevents.EventType, attempt int64) int64 {
		write.EventID, write.EventType, write.LogicalAttemptID = uuid.NewString(), event, attempt
		write.IdempotencyKey = runevents.IdempotencyKey(runevents.KeyFields{
			RunID: write.RunID, LogicalAttemptID: attempt, EventType: event,
			PlanID: "plan", PlanVersion: "1",
		})
		appended, err := w.engine.Runs().Append(t.Context(), "t", []runevents.Write{write})
		require.NoError(t, err)
		return appended[0].RunSeq
	}
	add(runevents.RunStarted, 1)
	run, err := w.engine.Runs().Get(t.Context(), "planner-1")
	require.NoError(t, err)
	require.Equal(t, runevents.RunRunning, run.Status)
	for told := int64(1); w.firstEvent() == 1; told++ {
		require.Less(t, told, int64(400), "it expires")
		add("Noted", told)
		time.Sleep(50 * time.Millisecond) // the pace of the writer
	}
	last := add(runevents.RunPaused, 1)
	require.Greater(t, last, int64(2))
	w.unknown("planner-1")
	page, err := w.engine.Runs().Events(t.Context(), "planner-1", last-1, 10)
	require.NoError(t, err, "whoever has read the others reads on")
	require.Len(t, page.Events, 1)
	require.Empty(t, w.listed())
	require.Empty(t, alerts())
}

// What is missing of a run is an alarm where nothing was discarded, or not the beginning of that
// run.
func TestAHoleInARunIsAnAlarm(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int64
		deleted int // the runSeq
	}{
		"its first event in a stream that has lost nothing": {-1, 1},
		"another one in a stream that was cut":              {15, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, alerts := alertedWorld(t, worldengine.Config{EventLimit: c.limit})
			run := w.talks(3)[2]
			w.deleteEvent(run, c.deleted)
			snapshot, err := w.engine.Runs().Get(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, runevents.Inconsistent, snapshot.Metadata.Consistency)
			require.Contains(t, alerts(), "INVALID_TRANSITION "+run)
		})
	}
}
