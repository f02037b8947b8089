package runlog_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/worldengine/internal/core/runlog"
)

// Random calls succeed exactly if the transitions allow them.
func TestProducer_EmitsNoInvalidTransition(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(4, 2))
	emitted := map[runevents.EventType]int{}
	for range 3000 {
		p := runlog.NewProducer(runeventstest.Identity, source())
		run, steps := runevents.RunStatusPending, map[string]runevents.StepStatus{"a": "PENDING",
			"b": "PENDING"}
		var want []string
		for range 15 {
			event := allEvents[g.IntN(len(allEvents))]
			if g.IntN(2) == 0 {
				next, valid := runevents.NextRunStatus(run, event)
				valid = valid && !slices.Contains(want, string(event))
				require.Equal(t, valid, emitRun(p, event, nil) == nil)
				if valid {
					run, want = next, append(want, string(event))
				}
				continue
			}
			step := []string{"a", "b"}[g.IntN(2)]
			next, valid := runevents.NextStepStatus(steps[step], event)
			ends := event == runevents.StepCompleted || event == runevents.StepFailed
			valid = valid && (run == "RUNNING" || run == "PAUSED" && ends)
			require.Equal(t, valid, emitStep(p, event, step, nil) == nil)
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

// Events whose members, payload or id are invalid are not emitted, and nothing moves. A payload has
// one form.
func TestProducer_BadEvents(t *testing.T) {
	t.Parallel()
	paused := func(payload any) runlog.Emission {
		return runlog.Emission{Type: runevents.RunPaused, Payload: payload}
	}
	p := runlog.NewProducer(runeventstest.Identity, source())
	require.NoError(t, emitRun(p, runevents.RunStarted, nil))
	for name, e := range map[string]runlog.Emission{
		"a step id with the delimiter": {Type: runevents.StepStarted, StepID: "a|b"},
		"an attempt below 1":           {Type: runevents.StepStarted, StepID: "a", Attempt: -1},
		"a payload that is not JSON":   {Type: runevents.StepStarted, StepID: "a", Payload: func() {}},
		"a payload that is no object":  paused("because"),
		"a payload that is null":       paused((*struct{})(nil)),
		"a payload that is not UTF-8":  paused(map[string]string{"reason": "\xff"}),
	} {
		require.Regexp(t, `^(runevents|runlog): `, p.Emit(e), name)
		require.Len(t, p.Run().Events, 1, name)
	}
	noon := time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC)
	e := paused(map[string]any{"c": 1, "a": 2, "b": 3})
	e.At = noon
	require.NoError(t, emitStep(p, runevents.StepStarted, "a", nil))
	require.NoError(t, p.Emit(e))
	require.Equal(t, `{"a":2,"b":3,"c":1}`, string(p.Run().Events[2].Payload))
	require.Equal(t, runevents.Timestamp(noon), p.Run().Events[2].EmittedAt)
	bad := runeventstest.Identity
	bad.PlanID = "plan|abc"
	p = runlog.NewProducer(bad, source())
	require.ErrorContains(t, emitRun(p, runevents.RunStarted, nil), "planId")
	for _, id := range []string{"", "not a UUID", "00000000-0000-1000-8000-000000000001"} {
		p = runlog.NewProducer(runeventstest.Identity, runlog.Source{
			Now: source().Now, NewID: func() string { return id }})
		require.ErrorIs(t, emitRun(p, runevents.RunStarted, nil), runlog.ErrBadID)
		require.Empty(t, p.Run().Events)
	}
}

// Drawn ids are the ids of later events, whoever continues the run. Other events get new ids, and
// ids that are drawn again are others.
func TestProducer_UseIDs(t *testing.T) {
	t.Parallel()
	toCome := []runlog.Event{
		stepEvent(runevents.RunStarted, "", 1), stepEvent(runevents.StepSkipped, "apply", 1),
	}
	drawn, err := runlog.DrawIDs(runeventstest.Identity, source().NewID, nil, toCome...)
	require.NoError(t, err)
	for range 2 {
		from := source()
		from.NewID = func() string { return "ffffffff-0000-4000-8000-000000000001" }
		p := runlog.NewProducer(runeventstest.Identity, from)
		p.UseIDs(drawn)
		wholeRun(t, p)
		for i, r := range p.Run().Records(persistedAt) {
			want := map[int]string{0: drawn[0].EventID, 3: drawn[1].EventID}[i]
			require.Equal(t, cmp.Or(want, from.NewID()), r.EventID)
			require.Equal(t, int64(1), r.EngineAttemptID)
			require.Equal(t, runlog.DrawnID{IdempotencyKey: r.IdempotencyKey, EventID: r.EventID},
				runlog.EventIDs(p.Run())[i])
		}
	}
	again, err := runlog.DrawIDs(runeventstest.Identity, source().NewID, drawn,
		toCome[1], stepEvent(runevents.RunCompleted, "", 1))
	require.NoError(t, err)
	require.Equal(t, drawn[1], again[0], "it was drawn before")
	from := source()
	from.NewID()
	another, err := runlog.DrawIDs(runeventstest.Identity, from.NewID, nil, toCome...)
	require.NoError(t, err)
	require.Equal(t, drawn[0].IdempotencyKey, another[0].IdempotencyKey)
	require.NotEqual(t, drawn[0].EventID, another[0].EventID)
	_, err = runlog.DrawIDs(runeventstest.Identity, func() string { return "no id" }, nil, toCome...)
	require.ErrorIs(t, err, runlog.ErrBadID)
}
