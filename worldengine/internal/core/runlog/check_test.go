package runlog_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/runlog"
)

// In any stream, Check refuses exactly the new events that a projector ignores as invalid.
func TestState_CheckAgainstProjections(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(11, 11))
	refusals, passes := 0, 0
	for range 300 {
		state := runlog.NewState(runeventstest.Identity.RunID, runlog.AppendPolicy{})
		belief := runevents.NewSnapshot(runeventstest.Identity.RunID)
		for range 4 + g.IntN(24) {
			r := anyRecord(g, belief.Status)
			r.RunSeq = belief.LastEventSeq + 1
			next, alerts, err := runevents.Incremental(belief, []runevents.Record{r})
			require.NoError(t, err)
			if known, ok := state.Find(r.IdempotencyKey); ok {
				require.Less(t, known.RunSeq, r.RunSeq)
				continue
			}
			err = state.Check(&r.Write)
			if len(alerts) > 0 && alerts[0].Code == runevents.InvalidTransition {
				_, ok := errors.AsType[*runevents.InvalidTransitionError](err)
				require.True(t, ok, "%v", err)
				refusals++
				continue
			}
			require.NoError(t, err)
			passes++
			belief = next
			_, err = state.Add(false, r)
			require.NoError(t, err)
		}
	}
	require.Greater(t, refusals, 100)
	require.Greater(t, passes, 100)
}

// anyRecord is an event that is often valid next in the status of its run.
func anyRecord(g *rand.Rand, run runevents.RunStatus) runevents.Record {
	event, step := allEvents[g.IntN(len(allEvents))], ""
	if event.IsStepLevel() {
		step = []string{"a", "b", "c"}[g.IntN(3)]
	} else if _, valid := runevents.NextRunStatus(run, event); event.EndsRun() && g.IntN(3) > 0 || !valid && g.IntN(5) > 0 {
		return anyRecord(g, run)
	}
	w := runeventstest.NewWrite(event, step, 1+g.Int64N(3))
	return runevents.Record{Write: w, PersistedAt: runevents.Timestamp(persistedAt)}
}

// NewWrite makes a valid write of a valid event.
func TestNewWrite(t *testing.T) {
	t.Parallel()
	want := runeventstest.NewWrite(runevents.StepStarted, "a", 2)
	event := runlog.Event{
		EventID: want.EventID, EventType: want.EventType, StepID: "a", LogicalAttemptID: 2,
		EmittedAt: want.EmittedAt,
	}
	got := runlog.NewWrite(runeventstest.Identity, event)
	require.Equal(t, want, got)
	require.NoError(t, got.Validate())
	event.LogicalAttemptID = 0
	got = runlog.NewWrite(runeventstest.Identity, event)
	require.Equal(t, []string{"/logicalAttemptId"}, schemastest.Paths(t, got.Validate()))
}
