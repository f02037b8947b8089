package runevents_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// In any stream, a guard refuses exactly the events that a projector ignores as invalid. After a
// refusal it passes no other event of that step attempt or run.
func TestGuard_AgainstProjections(t *testing.T) {
	t.Parallel()
	type entity struct {
		step    string
		attempt int64
	}
	g := rand.New(rand.NewPCG(11, 11))
	refusals, passes := 0, 0
	for range 300 {
		records := anyStream(g)
		guard := runevents.NewGuard(records[0].RunID)
		belief := runevents.NewSnapshot(records[0].RunID)
		stopped := map[entity]bool{}
		for i := range records {
			r := records[i]
			r.RunSeq = belief.LastEventSeq + 1
			next, alerts, err := runevents.Incremental(belief, []runevents.Record{r})
			require.NoError(t, err)
			invalid := len(eventIDs(alerts, runevents.InvalidTransition)) > 0
			of := entity{step: r.StepID}
			if r.StepID != "" {
				of.attempt = r.LogicalAttemptID
			}
			stopped[of] = stopped[of] || invalid
			if err := guard.Check(&r.Write); stopped[of] {
				_, ok := errors.AsType[*runevents.InvalidTransitionError](err)
				require.True(t, ok, "%v", err)
				refusals++
				continue
			} else {
				require.NoError(t, err)
			}
			passes++
			belief = next
			require.NoError(t, guard.Observe(r))
		}
	}
	require.Greater(t, refusals, 100)
	require.Greater(t, passes, 100)
}

// NewWrite makes a valid write, and validates the fields of the key.
func TestNewWrite(t *testing.T) {
	t.Parallel()
	want := newWrite(runevents.StepStarted, "a", 2)
	event := runevents.Event{
		EventID: want.EventID, EventType: want.EventType, StepID: "a", LogicalAttemptID: 2,
		EmittedAt: want.EmittedAt,
	}
	got, err := runevents.NewWrite(identity, event)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, got.Validate())
	event.LogicalAttemptID = 0
	_, err = runevents.NewWrite(identity, event)
	require.ErrorContains(t, err, "logicalAttemptId")
}
