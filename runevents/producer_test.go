package runevents_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

var identity = runevents.Identity{
	RunID: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", TenantID: "default", ProjectID: "main",
	EnvironmentID: "local", PlanID: "plan_abc", PlanVersion: "2",
}

// source counts: the nth id ends in n, and every look at the clock is 1 ms later.
func source() runevents.Source {
	ids, ticks := 0, 0
	return runevents.Source{
		Now: func() time.Time {
			ticks++
			return time.Date(2026, 2, 16, 10, 0, 0, 0,
				time.UTC).Add(time.Duration(ticks) * time.Millisecond)
		},
		NewID: func() string {
			ids++
			return fmt.Sprintf("00000000-0000-4000-8000-%012d", ids)
		},
	}
}

// wholeRun emits a run with one completed and one skipped step.
func wholeRun(t testing.TB, p *runevents.Producer) {
	t.Helper()
	require.NoError(t, p.OfRun(runevents.RunStarted, map[string]any{"townId": "alpha"}))
	require.NoError(t, p.OfStep(runevents.StepStarted, "stale-check", nil))
	require.NoError(t,
		p.OfStep(runevents.StepCompleted, "stale-check", map[string]any{"passed": true}))
	require.NoError(t, p.OfStep(runevents.StepSkipped, "apply", map[string]any{"reason": "STALE"}))
	require.NoError(t, p.OfRun(runevents.RunCompleted, nil))
}

// Persisted events stay; the next event has the next place, and a restart discards only events
// after them.
func TestAProducerGoesOnFromWhatIsPersisted(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	noon := time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	p.HappenedAt(noon) // there is no event that happened
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	p.Persisted(5)
	require.Equal(t, int64(5), p.Run().FirstSeq)
	require.Empty(t, p.Run().Events)
	require.NoError(t, p.OfRun(runevents.RunPaused, nil))
	require.NoError(t, p.OfRun(runevents.RunResumed, nil))
	before := p.Run().Events[1].EmittedAt
	p.HappenedAt(time.Time{})
	require.Equal(t, before, p.Run().Events[1].EmittedAt)
	p.HappenedAt(noon)
	require.Equal(t, runevents.Timestamp(noon), p.Run().Events[1].EmittedAt)
	require.NotEqual(t, runevents.Timestamp(noon), p.Run().Events[0].EmittedAt)
	require.NoError(t, p.OfRun(runevents.RunCompleted, nil))
	require.Equal(t, runevents.RunSucceeded, p.Status())
	p.Restart()
	require.Equal(t, runevents.RunRunning, p.Status())
	require.Error(t, p.OfRun(runevents.RunStarted, nil), "persisted")
}

// A persisted event is not emitted again, even if its transition is valid: it would have the same
// key.
func TestAProducerDoesNotRepeatWhatIsPersisted(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	require.NoError(t, p.OfRun(runevents.RunPaused, nil))
	p.Persisted(3)
	require.NoError(t, p.OfRun(runevents.RunResumed, nil))
	p.Persisted(4)
	for range 2 {
		require.ErrorContains(t, p.OfRun(runevents.RunPaused, nil), "RunPaused was emitted before")
		require.NoError(t, p.OfRunAgain(runevents.RunPaused, 2, nil))
		p.Restart()
	}
}

func TestAProducerEmitsInOrder(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	require.Equal(t, &runevents.Run{
		Identity: identity,
		FirstSeq: 1,
		Events: []runevents.Event{
			{
				EventID: "00000000-0000-4000-8000-000000000001", EventType: "RunStarted",
				LogicalAttemptID: 1,
				EmittedAt:        "2026-02-16T10:00:00.001Z", Payload: []byte(`{"townId":"alpha"}`),
			},
			{
				EventID: "00000000-0000-4000-8000-000000000002", EventType: "StepStarted",
				StepID: "stale-check", LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.002Z",
			},
			{
				EventID: "00000000-0000-4000-8000-000000000003", EventType: "StepCompleted",
				StepID: "stale-check", LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.003Z",
				Payload: []byte(`{"passed":true}`),
			},
			{
				EventID: "00000000-0000-4000-8000-000000000004", EventType: "StepSkipped",
				StepID: "apply", LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.004Z",
				Payload: []byte(`{"reason":"STALE"}`),
			},
			{
				EventID: "00000000-0000-4000-8000-000000000005", EventType: "RunCompleted",
				LogicalAttemptID: 1, EmittedAt: "2026-02-16T10:00:00.005Z",
			},
		},
	}, p.Run())
}

func TestRestartKeepsTheEventIDsAndForgetsTheEvents(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	first, events := p.Run().Records(time.Time{}), p.Run().Events
	same := slices.Clone(events)

	p.Restart()
	require.Empty(t, p.Run().Events)
	require.Equal(t, identity, p.Run().Identity)
	wholeRun(t, p)
	second := p.Run().Records(time.Time{})
	require.Len(t, second, len(first))
	for i := range first {
		require.Equal(t, first[i].EventID, second[i].EventID)
		require.Equal(t, first[i].IdempotencyKey, second[i].IdempotencyKey)
		require.Less(t, first[i].EmittedAt, second[i].EmittedAt, "the clock goes on")
	}
	require.Equal(t, same, events, "what was taken before is not written over")
}

// TestAnotherCourseAfterARestart: events that both courses have keep their ids, new ones get
// their own.
func TestAnotherCourseAfterARestart(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	wholeRun(t, p)
	ids := map[string]string{}
	for _, r := range p.Run().Records(time.Time{}) {
		ids[r.IdempotencyKey] = r.EventID
	}
	p.Restart()
	require.NoError(t, p.OfRun(runevents.RunQueued, nil))
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	require.NoError(t, p.OfStep(runevents.StepStarted, "stale-check", nil))
	require.NoError(t, p.OfStep(runevents.StepFailed, "stale-check", nil))
	require.NoError(t, p.OfRun(runevents.RunFailed, nil))
	kept, before := 0, len(ids)
	for _, r := range p.Run().Records(time.Time{}) {
		if id, ok := ids[r.IdempotencyKey]; ok {
			require.Equal(t, id, r.EventID)
			kept++
		}
		ids[r.IdempotencyKey] = r.EventID
	}
	require.Equal(t, 2, kept, "both courses have RunStarted and the start of the first step")
	require.Len(t, ids, before+3)
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = true
	}
	require.Len(t, distinct, len(ids))
	require.Len(t, ids, 5+3)
}

func TestTheErrorNamesWhatIsAndWhatWasAttempted(t *testing.T) {
	t.Parallel()
	running := func(p *runevents.Producer) error { return p.OfRun(runevents.RunStarted, nil) }
	for _, row := range []struct {
		name    string
		arrange []func(*runevents.Producer) error
		act     func(*runevents.Producer) error
		want    runevents.InvalidTransitionError
		says    string
	}{
		{
			"a run that has not started cannot end", nil,
			func(p *runevents.Producer) error { return p.OfRun(runevents.RunCompleted, nil) },
			runevents.InvalidTransitionError{
				Expected: "RUNNING", Actual: "PENDING", Attempted: "RunCompleted",
			},
			"runevents: the run is PENDING, so RunCompleted is not a valid transition: it has to " +
				"be RUNNING",
		},
		{
			"a run starts once", []func(*runevents.Producer) error{running}, running,
			runevents.InvalidTransitionError{
				Expected: "PENDING or APPROVED", Actual: "RUNNING", Attempted: "RunStarted",
			},
			"runevents: the run is RUNNING, so RunStarted is not a valid transition: it has to be " +
				"PENDING or APPROVED",
		},
		{
			"a step of a run that has not started", nil,
			func(p *runevents.Producer) error {
				return p.OfStep(runevents.StepStarted, "apply", nil)
			},
			runevents.InvalidTransitionError{
				Expected: "RUNNING", Actual: "PENDING", Attempted: "StepStarted",
			},
			"runevents: the run is PENDING, so StepStarted is not a valid transition: it has to " +
				"be RUNNING",
		},
		{
			"a step of a run that has ended",
			[]func(*runevents.Producer) error{running, func(p *runevents.Producer) error {
				return p.OfRun(runevents.RunFailed, nil)
			}},
			func(p *runevents.Producer) error {
				return p.OfStep(runevents.StepSkipped, "apply", nil)
			},
			runevents.InvalidTransitionError{
				Expected: "RUNNING", Actual: "FAILED", Attempted: "StepSkipped",
			},
			"runevents: the run is FAILED, so StepSkipped is not a valid transition: it has to " +
				"be RUNNING",
		},
		{
			"a step completes only after its start", []func(*runevents.Producer) error{running},
			func(p *runevents.Producer) error {
				return p.OfStep(runevents.StepCompleted, "apply", nil)
			},
			runevents.InvalidTransitionError{
				StepID: "apply", Expected: "RUNNING", Actual: "PENDING", Attempted: "StepCompleted",
			},
			"runevents: step apply is PENDING, so StepCompleted is not a valid transition: it " +
				"has to be RUNNING",
		},
		{
			"a run event is none of a step", []func(*runevents.Producer) error{running},
			func(p *runevents.Producer) error {
				return p.OfStep(runevents.RunCompleted, "apply", nil)
			},
			runevents.InvalidTransitionError{StepID: "apply", Actual: "PENDING",
				Attempted: "RunCompleted"},
			"runevents: step apply is PENDING, so RunCompleted is not a valid transition",
		},
		{
			"a signal is decided while its run goes on", nil,
			func(p *runevents.Producer) error { return p.OfRun(runevents.SignalAccepted, nil) },
			runevents.InvalidTransitionError{
				Expected: "RUNNING or PAUSED", Actual: "PENDING", Attempted: "SignalAccepted",
			},
			"runevents: the run is PENDING, so SignalAccepted is not a valid transition: it has " +
				"to be RUNNING or PAUSED",
		},
		{
			"a paused run ends only by a cancellation", nil,
			func(p *runevents.Producer) error {
				p.ResumeAt(runevents.RunIsPaused)
				return p.OfRun(runevents.RunCompleted, nil)
			},
			runevents.InvalidTransitionError{
				Expected: "RUNNING", Actual: "PAUSED", Attempted: "RunCompleted",
			},
			"runevents: the run is PAUSED, so RunCompleted is not a valid transition: it has to " +
				"be RUNNING",
		},
		{
			"a step event is none of the run", []func(*runevents.Producer) error{running},
			func(p *runevents.Producer) error { return p.OfRun(runevents.StepStarted, nil) },
			runevents.InvalidTransitionError{Actual: "RUNNING", Attempted: "StepStarted"},
			"runevents: the run is RUNNING, so StepStarted is not a valid transition",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := runevents.NewProducer(identity, source())
			for _, step := range row.arrange {
				require.NoError(t, step(p))
			}
			err := row.act(p)
			invalid, ok := errors.AsType[*runevents.InvalidTransitionError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, row.want, *invalid)
			require.Equal(t, row.says, err.Error())
			require.Len(t, p.Run().Events, len(row.arrange), "nothing was emitted")
		})
	}
}

func TestAProducerRefusesWhatCannotBeAnEvent(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*runevents.Producer) error{
		"a step without an id": func(p *runevents.Producer) error {
			return p.OfStep(runevents.StepStarted, "", nil)
		},
		"a step id with the delimiter": func(p *runevents.Producer) error {
			return p.OfStep(runevents.StepStarted, "a|b", nil)
		},
		"a payload that is not JSON": func(p *runevents.Producer) error {
			return p.OfStep(runevents.StepStarted, "a", make(chan int))
		},
		"a payload that is no object": func(p *runevents.Producer) error {
			return p.OfRun(runevents.RunPaused, "because")
		},
		"a payload that is null": func(p *runevents.Producer) error {
			return p.OfRun(runevents.RunPaused, (*struct{})(nil))
		},
		"a payload that is not UTF-8": func(p *runevents.Producer) error {
			return p.OfRun(runevents.RunPaused, map[string]string{"reason": "\xff"})
		},
		"a payload of a run not JSON": func(p *runevents.Producer) error {
			return p.OfRun(runevents.RunPaused, func() {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runevents.NewProducer(identity, source())
			require.NoError(t, p.OfRun(runevents.RunStarted, nil))
			require.ErrorContains(t, act(p), "runevents: ")
			require.Len(t, p.Run().Events, 1, "nothing was emitted")
			require.NoError(t, p.OfStep(runevents.StepStarted, "a", nil), "and nothing has moved")
			require.NoError(t, p.OfRun(runevents.RunPaused, nil))
		})
	}
	t.Run("a plan with the delimiter", func(t *testing.T) {
		t.Parallel()
		bad := identity
		bad.PlanID = "plan|abc"
		p := runevents.NewProducer(bad, source())
		require.ErrorContains(t, p.OfRun(runevents.RunStarted, nil), "planId")
		require.Empty(t, p.Run().Events)
	})
}

// Two equal events would have the same idempotency key, and the append authority must not insert
// the second (section 3.2).
func TestARunNeverHasTheSameEventTwice(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	require.NoError(t, p.OfRun(runevents.RunQueued, nil))
	require.ErrorContains(t, p.OfRun(runevents.RunQueued, nil), "RunQueued was emitted before")
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
	require.NoError(t, p.OfRun(runevents.RunPaused, nil))
	require.NoError(t, p.OfRun(runevents.RunResumed, nil))
	require.ErrorContains(t, p.OfRun(runevents.RunPaused, nil), "RunPaused was emitted before")
	require.NoError(t, p.OfRun(runevents.RunCompleted, nil), "the run is where it was")
	require.Len(t, p.Run().Events, 5)

	p.Restart()
	require.NoError(t, p.OfRun(runevents.RunQueued, nil), "nothing of it was persisted")
}

// TestNoSequenceOfCallsEmitsAnInvalidTransition calls at random and holds the producer against
// the tables of transitions.
func TestNoSequenceOfCallsEmitsAnInvalidTransition(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(4, 2))
	emitted := map[runevents.EventType]int{}
	for range 3000 {
		p := runevents.NewProducer(identity, source())
		run, steps := runStatuses[0], map[string]runevents.StepStatus{"a": "PENDING",
			"b": "PENDING"}
		var want []string
		for range 15 {
			event := allEvents[g.IntN(len(allEvents))]
			if g.IntN(2) == 0 {
				next, valid := runTransitions[run][event]
				valid = valid && !slices.Contains(want, string(event))
				require.Equal(t, valid, p.OfRun(event, nil) == nil)
				if valid {
					run, want = next, append(want, string(event))
				}
				continue
			}
			step := []string{"a", "b"}[g.IntN(2)]
			next, valid := stepTransitions[steps[step]][event]
			ends := event == runevents.StepCompleted || event == runevents.StepFailed
			valid = valid && (run == "RUNNING" || run == "PAUSED" && ends)
			require.Equal(t, valid, p.OfStep(event, step, nil) == nil)
			if valid {
				steps[step], want = next, append(want, string(event)+" "+step)
			}
		}
		var got []string
		for _, e := range p.Run().Events {
			emitted[e.EventType]++
			got = append(got, strings.TrimSpace(string(e.EventType)+" "+e.StepID))
		}
		require.Equal(t, want, got)
		keys := map[string]bool{}
		for _, r := range p.Run().Records(time.Time{}) {
			require.False(t, keys[r.IdempotencyKey], "%v", got)
			keys[r.IdempotencyKey] = true
		}
	}
	require.Len(t, emitted, 12, "every known event was emitted: %v", emitted)
}

func TestAProducerEmitsNothingWithABadID(t *testing.T) {
	t.Parallel()
	ids := []string{
		"00000000-0000-4000-8000-000000000001", "", "not a UUID",
		"00000000-0000-1000-8000-000000000001",
	}
	from := source()
	from.NewID = func() string { id := ids[0]; ids = ids[1:]; return id }
	p := runevents.NewProducer(identity, from)
	require.NoError(t, p.OfRun(runevents.RunQueued, nil))
	for len(ids) > 0 {
		require.ErrorIs(t, p.OfRun(runevents.RunStarted, nil), runevents.ErrBadID)
		require.Len(t, p.Run().Events, 1)
	}
	from.NewID = source().NewID
	p = runevents.NewProducer(identity, from)
	require.NoError(t, p.OfRun(runevents.RunStarted, nil))
}

// A producer that emits again after a restart counts up no engineAttemptId (section 2.4).
func TestARestartIsNoEngineAttempt(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	for range 3 {
		wholeRun(t, p)
		for _, r := range p.Run().Records(persistedAt) {
			require.Equal(t, int64(1), r.EngineAttemptID)
		}
		p.Restart()
	}
}
