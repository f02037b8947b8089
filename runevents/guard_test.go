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

// An event that the guard learns of late counts, although its runSeq is lower; a refused record
// changes nothing.
func TestGuard_Observe(t *testing.T) {
	t.Parallel()
	guard := runevents.NewGuard(identity.RunID)
	record := func(event runevents.EventType, runSeq int64) runevents.Record {
		return runevents.Record{Write: newWrite(event, "a", 1), RunSeq: runSeq}
	}
	completed := newWrite(runevents.StepCompleted, "a", 1)
	require.NoError(t, guard.Observe(runevents.Record{
		Write: newWrite(runevents.RunStarted, "", 1), RunSeq: 7,
	}))
	other := record(runevents.StepStarted, 8)
	other.RunID = "other"
	require.ErrorIs(t, guard.Observe(record(runevents.StepStarted, 8), other),
		runevents.ErrOtherRun)
	require.ErrorIs(t, guard.Observe(record(runevents.StepStarted, 0)), runevents.ErrNoRunSeq)
	started := newWrite(runevents.StepStarted, "a", 1)
	require.NoError(t, guard.Check(&started), "not taken in so far")
	require.ErrorIs(t, guard.Check(&other.Write), runevents.ErrOtherRun)
	require.NoError(t, guard.Observe(record(runevents.StepStarted, 3)))
	require.NoError(t, guard.Check(&completed))
}

// A refusal stops its attempt of its step, and the error lists the statuses in which the event is
// valid.
func TestGuard_StopsAStepAttempt(t *testing.T) {
	t.Parallel()
	guard := runevents.NewGuard(identity.RunID)
	run := func(event runevents.EventType, runSeq int64) runevents.Record {
		return runevents.Record{Write: newWrite(event, "", 1), RunSeq: runSeq}
	}
	require.NoError(t, guard.Observe(run(runevents.RunStarted, 1)))
	early := newWrite(runevents.StepCompleted, "a", 1)
	first := newWrite(runevents.StepStarted, "a", 1)
	second := newWrite(runevents.StepStarted, "a", 2)
	refused := &runevents.InvalidTransitionError{StepID: "a", Expected: "RUNNING",
		Actual: "PENDING", Attempted: runevents.StepCompleted}
	require.Equal(t, refused, guard.Check(&early))
	require.Equal(t, refused, guard.Check(&first), "the attempt is stopped")
	require.NoError(t, guard.Check(&second))

	require.NoError(t, guard.Observe(run(runevents.RunCompleted, 2)))
	late := newWrite(runevents.StepStarted, "b", 1)
	require.Equal(t, &runevents.InvalidTransitionError{StepID: "b", Expected: "RUNNING or PAUSED",
		Actual: "COMPLETED", Attempted: runevents.StepStarted}, guard.Check(&late))
}

// A decision about a signal moves nothing, so a projector accepts it anywhere; its producer emits
// it only while the run goes on.
func TestGuard_Signals(t *testing.T) {
	t.Parallel()
	for _, event := range []runevents.EventType{runevents.SignalAccepted,
		runevents.SignalRejected} {
		w := newWrite(event, "", 1)
		for status, valid := range map[runevents.EventType]bool{
			"": false, runevents.RunStarted: true, runevents.RunPaused: true,
			runevents.RunCompleted: false,
		} {
			guard := runevents.NewGuard(identity.RunID)
			before := []runevents.Record{{Write: newWrite(runevents.RunStarted, "", 1), RunSeq: 1}}
			if status != runevents.RunStarted {
				before = append(before, runevents.Record{Write: newWrite(status, "", 1), RunSeq: 2})
			}
			if status != "" {
				require.NoError(t, guard.Observe(before...))
			}
			err := guard.Check(&w)
			require.Equal(t, valid, err == nil, "%s after %s: %v", event, status, err)
			if invalid, ok := errors.AsType[*runevents.InvalidTransitionError](err); !valid {
				require.True(t, ok)
				require.Equal(t, "RUNNING or PAUSED", invalid.Expected)
				require.Contains(t, []string{"PENDING", "COMPLETED"}, invalid.Actual)
			}
		}
	}
}

// The write of an event is valid, and the fields of its key are checked.
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
