package runevents_test

import (
	"cmp"
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

func TestProducer_EmitsInOrder(t *testing.T) {
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

// Calls at random, held against the tables of transitions.
func TestProducer_EmitsNoInvalidTransition(t *testing.T) {
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

// A producer goes on with a run of another one, or behind its persisted events.
func TestProducer_GoesOn(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	p := runevents.NewProducer(identity, source())
	p.ResumeAt(runevents.RunIsPaused, on(runevents.StepStarted, "apply", 2))
	p.Persisted(5)
	require.NoError(t, p.Emit(runevents.Emission{Type: runevents.StepFailed, StepID: "apply",
		Attempt: 2, At: noon}), "a step that is in flight may end")
	require.NoError(t, p.OfRun(runevents.RunResumed, nil))
	run := *p.Run()
	require.Equal(t, int64(5), run.FirstSeq)
	require.Equal(t, runevents.Timestamp(noon), run.Events[0].EmittedAt)
	require.NotEqual(t, runevents.Timestamp(noon), run.Events[1].EmittedAt)
	p.Persisted(7)
	require.NoError(t, p.Emit(runevents.Emission{Type: runevents.RunPaused, Attempt: 2}))
	require.Equal(t, runevents.RunIsPaused, p.Status())
	require.Equal(t, int64(7), p.Run().FirstSeq)
	require.Len(t, p.Run().Events, 1)
	require.Equal(t, runevents.StepFailed, run.Events[0].EventType, "taken before")
}

// A refused event leaves the run as it was; the error has the states.
func TestProducer_InvalidTransition(t *testing.T) {
	t.Parallel()
	running := runevents.Emission{Type: runevents.RunStarted}
	for _, row := range []struct {
		before []runevents.Emission
		emit   runevents.Emission
		want   runevents.InvalidTransitionError
		says   string
	}{
		{nil, runevents.Emission{Type: runevents.RunCompleted},
			runevents.InvalidTransitionError{Expected: "RUNNING", Actual: "PENDING"},
			"the run is PENDING, so RunCompleted is not a valid transition: it has to be RUNNING"},
		{[]runevents.Emission{running}, running,
			runevents.InvalidTransitionError{Expected: "PENDING or APPROVED", Actual: "RUNNING"},
			"the run is RUNNING, so RunStarted is not a valid transition: it has to be PENDING or " +
				"APPROVED"},
		{nil, runevents.Emission{Type: runevents.StepStarted, StepID: "apply"},
			runevents.InvalidTransitionError{Expected: "RUNNING", Actual: "PENDING"},
			"the run is PENDING, so StepStarted is not a valid transition: it has to be RUNNING"},
		{[]runevents.Emission{running, {Type: runevents.RunFailed}},
			runevents.Emission{Type: runevents.StepSkipped, StepID: "apply"},
			runevents.InvalidTransitionError{Expected: "RUNNING", Actual: "FAILED"},
			"the run is FAILED, so StepSkipped is not a valid transition: it has to be RUNNING"},
		{[]runevents.Emission{running},
			runevents.Emission{Type: runevents.StepCompleted, StepID: "apply"},
			runevents.InvalidTransitionError{StepID: "apply", Expected: "RUNNING", Actual: "PENDING"},
			"step apply is PENDING, so StepCompleted is not a valid transition: it has to be " +
				"RUNNING"},
		{[]runevents.Emission{running},
			runevents.Emission{Type: runevents.RunCompleted, StepID: "apply"},
			runevents.InvalidTransitionError{StepID: "apply", Actual: "PENDING"},
			"step apply is PENDING, so RunCompleted is not a valid transition"},
		{[]runevents.Emission{running}, runevents.Emission{Type: runevents.StepStarted},
			runevents.InvalidTransitionError{Actual: "RUNNING"},
			"the run is RUNNING, so StepStarted is not a valid transition"},
		{nil, runevents.Emission{Type: runevents.SignalAccepted},
			runevents.InvalidTransitionError{Expected: "RUNNING or PAUSED", Actual: "PENDING"},
			"the run is PENDING, so SignalAccepted is not a valid transition: it has to be RUNNING " +
				"or PAUSED"},
		{[]runevents.Emission{running, {Type: runevents.RunPaused}},
			runevents.Emission{Type: runevents.RunCompleted},
			runevents.InvalidTransitionError{Expected: "RUNNING", Actual: "PAUSED"},
			"the run is PAUSED, so RunCompleted is not a valid transition: it has to be RUNNING"},
	} {
		t.Run(row.says, func(t *testing.T) {
			t.Parallel()
			p := runevents.NewProducer(identity, source())
			for _, e := range row.before {
				require.NoError(t, p.Emit(e))
			}
			status := p.Status()
			err := p.Emit(row.emit)
			row.want.Attempted = row.emit.Type
			require.Equal(t, &row.want, err)
			require.EqualError(t, err, "runevents: "+row.says)
			require.Len(t, p.Run().Events, len(row.before), "nothing was emitted")
			require.Equal(t, status, p.Status())
		})
	}
}

// Events whose members or payload are invalid are not emitted, nor is one with the idempotency key
// of another, which the append authority would not insert (section 3.2).
func TestProducer_BadEvents(t *testing.T) {
	t.Parallel()
	paused := func(payload any) runevents.Emission {
		return runevents.Emission{Type: runevents.RunPaused, Payload: payload}
	}
	for name, e := range map[string]runevents.Emission{
		"a step id with the delimiter": {Type: runevents.StepStarted, StepID: "a|b"},
		"an attempt below 1":           {Type: runevents.StepStarted, StepID: "a", Attempt: -1},
		"a payload that is not JSON":   {Type: runevents.StepStarted, StepID: "a", Payload: func() {}},
		"a payload that is no object":  paused("because"),
		"a payload that is null":       paused((*struct{})(nil)),
		"a payload that is not UTF-8":  paused(map[string]string{"reason": "\xff"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runevents.NewProducer(identity, source())
			require.NoError(t, p.OfRun(runevents.RunStarted, nil))
			require.ErrorContains(t, p.Emit(e), "runevents: ")
			require.Len(t, p.Run().Events, 1, "nothing was emitted")
			require.NoError(t, p.OfStep(runevents.StepStarted, "a", nil), "and nothing has moved")
			require.NoError(t, p.OfRun(runevents.RunPaused, nil))
			require.NoError(t, p.OfRun(runevents.RunResumed, nil))
			require.ErrorContains(t, p.OfRun(runevents.RunPaused, nil),
				"RunPaused was emitted before")
			require.NoError(t, p.OfRun(runevents.RunCompleted, nil), "the run is where it was")
		})
	}
	bad := identity
	bad.PlanID = "plan|abc"
	p := runevents.NewProducer(bad, source())
	require.ErrorContains(t, p.OfRun(runevents.RunStarted, nil), "planId")
	for _, id := range []string{"", "not a UUID", "00000000-0000-1000-8000-000000000001"} {
		p = runevents.NewProducer(identity, runevents.Source{
			Now: source().Now, NewID: func() string { return id }})
		require.ErrorIs(t, p.OfRun(runevents.RunStarted, nil), runevents.ErrBadID)
		require.Empty(t, p.Run().Events)
	}
}

func TestProducer_PayloadsAreDeterministic(t *testing.T) {
	t.Parallel()
	payload := map[string]any{}
	for i := range 50 {
		payload[fmt.Sprint(i)] = i
	}
	payloads := map[string]bool{}
	for range 20 {
		p := runevents.NewProducer(identity, source())
		require.NoError(t, p.OfRun(runevents.RunStarted, payload))
		payloads[string(p.Run().Events[0].Payload)] = true
	}
	require.Len(t, payloads, 1)
}

// Ids that were drawn and stored are the ids of the later events, whoever continues the run; other
// events get new ids, and engineAttemptId stays 1.
func TestProducer_UseIDs(t *testing.T) {
	t.Parallel()
	toCome := []runevents.Event{
		on(runevents.RunStarted, "", 1), on(runevents.StepSkipped, "apply", 1),
	}
	drawn, err := runevents.DrawIDs(identity, source().NewID, nil, toCome...)
	require.NoError(t, err)
	for range 2 {
		from := source()
		from.NewID = func() string { return "ffffffff-0000-4000-8000-000000000001" }
		p := runevents.NewProducer(identity, from)
		p.UseIDs(drawn)
		wholeRun(t, p)
		for i, r := range p.Run().Records(persistedAt) {
			want := map[int]string{0: drawn[0].EventID, 3: drawn[1].EventID}[i]
			require.Equal(t, cmp.Or(want, from.NewID()), r.EventID)
			require.Equal(t, int64(1), r.EngineAttemptID)
			require.Equal(t, runevents.DrawnID{IdempotencyKey: r.IdempotencyKey, EventID: r.EventID},
				p.Run().Drawn()[i])
		}
	}
	again, err := runevents.DrawIDs(identity, source().NewID, drawn,
		toCome[1], on(runevents.RunCompleted, "", 1))
	require.NoError(t, err)
	require.Equal(t, drawn[1], again[0], "it was drawn before")
	_, err = runevents.DrawIDs(identity, func() string { return "no id" }, nil, toCome...)
	require.ErrorIs(t, err, runevents.ErrBadID)
}

// Ids are drawn, not derived: two runs have different ids for the same events, and so has one run
// that draws twice.
func TestDrawIDs(t *testing.T) {
	t.Parallel()
	other := identity
	other.RunID = "another"
	from, started := source(), on(runevents.RunStarted, "", 1)
	a, err := runevents.DrawIDs(identity, from.NewID, nil, started)
	require.NoError(t, err)
	b, err := runevents.DrawIDs(identity, from.NewID, nil, started)
	require.NoError(t, err)
	c, err := runevents.DrawIDs(other, from.NewID, a, started)
	require.NoError(t, err)
	require.Equal(t, a[0].IdempotencyKey, b[0].IdempotencyKey)
	require.NotEqual(t, a[0].EventID, b[0].EventID)
	require.NotEqual(t, a[0], c[0])
}
