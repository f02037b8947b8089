package inhand_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/inhand"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/outcometest"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town/towntest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// accepted is a run whose command is being applied, as an engine has committed it.
type accepted struct {
	*inhand.Store
	*inhand.Run
	t   *testing.T
	log *commitlog.Log
}

func accept(t *testing.T) *accepted {
	t.Helper()
	l, before := logtest.New(t), towntest.Threatened()
	a := &accepted{t: t, log: l, Store: &inhand.Store{
		NewProducer: logtest.NewProducer,
		Runs: runs.New(l, nil, runs.Config{World: "main", Retention: time.Hour,
			Logger: slog.New(slog.DiscardHandler)}),
	}}
	h := outcometest.Advance(t, "wall", outcometest.WallExists)
	pending := logtest.Accept(t, l, before, h)
	decoded, err := pending.Read()
	require.NoError(t, err)
	a.Run = &inhand.Run{Decoded: decoded, TownID: h.Proposal.TownID, Before: before}
	return a
}

// goOn has the run be at an attempt, the one before it failed.
func (a *accepted) goOn(attempt int64) {
	p := a.Pending
	if p.Attempt = attempt; attempt > 1 {
		p.Last = &apply.Failure{Reason: apply.ReasonPluginTimeout, Message: "no answer",
			At: time.Date(2026, 2, 16, 10, 0, 0, 0, time.UTC)}
	}
	var err error
	p.EventIDs, err = runevents.DrawIDs(p.Run, uuid.NewString, p.EventIDs,
		lifecycle.ToCome(attempt)...)
	require.NoError(a.t, err)
}

// hold has the run paused by a pause, or going on.
func (a *accepted) hold(by *commitlog.PausedBy) {
	a.t.Helper()
	require.NoError(a.t, a.Hold(a.t.Context(), a.TownID, a.Pending, by,
		func() (*commitlog.PausedBy, error) { return by, nil }))
}

// result returns what is answered where the command was applied, or failed for a reason.
func (a *accepted) result(reason handoff.ReasonCode) *handoff.Result {
	checked := machine.Check(a.Handoff, nil, a.Before)
	if reason != "" {
		return handoff.NewResult(a.Handoff, checked.Failed(reason, a.Before))
	}
	return handoff.NewResult(a.Handoff, checked.Executed(a.Expected))
}

// end ends the run, whose command was applied.
func (a *accepted) end() (*runevents.Run, error) {
	return a.End(a.t.Context(), a.Run, a.result(""), nil, &apply.Result{Applied: true})
}

// stored returns the events that stand on the subject of the run, which follow each other.
func (a *accepted) stored() (events []runevents.Record) {
	a.t.Helper()
	for seq := uint64(0); ; {
		msg, err := a.log.EventsAfter(a.t.Context(), a.Pending.Run.RunID, seq)
		require.NoError(a.t, err)
		if msg == nil {
			break
		}
		rec, err := commitlog.ReadRecord(msg.Data)
		require.NoError(a.t, err)
		events = append(events, rec.Run.Records(msg.Time)...)
		seq = msg.Sequence
	}
	for i := range events {
		require.Equal(a.t, a.Pending.Emitted+1+int64(i), events[i].RunSeq)
	}
	return events
}

// named names events, with the number of their attempts.
func named(events []runevents.Record) []string {
	names := []string{}
	for i := range events {
		names = append(names, fmt.Sprintf("%s %d", events[i].EventType, events[i].LogicalAttemptID))
	}
	return names
}

// closed reports whether only the engine goes on with the run.
func (a *accepted) closed() bool {
	tail, err := a.log.Tail(a.t.Context(), a.Pending.Run.RunID, a.Pending.Emitted)
	require.NoError(a.t, err)
	return tail.Closed
}

// requireDrawn requires that events have the ids that were drawn for them.
func (a *accepted) requireDrawn(events []runevents.Record) {
	a.t.Helper()
	for i := range events {
		drawn := ""
		for _, id := range a.Pending.EventIDs {
			if id.IdempotencyKey == events[i].IdempotencyKey {
				drawn = id.EventID
			}
		}
		require.Equal(a.t, drawn, events[i].EventID, events[i].EventType)
	}
}

var repairs = &commitlog.PausedBy{SignalID: "signal", ActorID: "ada", Reason: "repairs"}

// Each attempt that failed is there once, and the present one once it has started.
func TestAttemptsAreRecorded(t *testing.T) {
	t.Parallel()
	a := accept(t)
	for _, step := range []struct {
		attempt int64
		started bool
		want    []string
	}{
		{1, true, []string{}}, // its start stands in the first commit
		{2, false, []string{"StepFailed 1"}},
		{2, false, []string{"StepFailed 1"}},
		{2, true, []string{"StepFailed 1", "StepStarted 2"}},
		{2, true, []string{"StepFailed 1", "StepStarted 2"}},
		{3, true, []string{"StepFailed 1", "StepStarted 2", "StepFailed 2", "StepStarted 3"}},
	} {
		if a.Pending.Attempt != step.attempt {
			a.goOn(step.attempt)
		}
		before := len(a.stored())
		require.NoError(t, a.RecordAttempts(t.Context(), a.Run, step.started))
		stored := a.stored()
		require.Equal(t, step.want, named(stored))
		a.requireDrawn(stored[before:])
		require.False(t, a.closed())
	}
	failed := a.stored()[0]
	require.Equal(t, "2026-02-16T10:00:00.000Z", failed.EmittedAt, "it is said when it failed")
	require.Contains(t, string(failed.Payload), `"message":"no answer"`)
}

// The end of a run follows all that it lacks, and from then on it is the engine's alone. Asked for
// again it is the same.
func TestTheEndOfARun(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		attempt     int64
		failed      *apply.Failure
		before, end []string
	}{
		{"applied", 1, nil, []string{}, []string{"StepCompleted 1", "RunCompleted 1"}},
		{"applied at the second attempt", 2, nil, []string{"StepFailed 1", "StepStarted 2"},
			[]string{"StepCompleted 2", "RunCompleted 1"}},
		{"failed", 1, &apply.Failure{Reason: "PLUGIN_TIMEOUT", Code: "LATE", Message: "why"},
			[]string{}, []string{"StepFailed 1", "RunFailed 1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := accept(t)
			a.goOn(row.attempt)
			v, reason := &apply.Result{Applied: row.failed == nil}, handoff.ReasonCode("")
			if row.failed != nil {
				reason = row.failed.Reason
			}
			var first *runevents.Run
			for range 2 {
				run, err := a.End(t.Context(), a.Run, a.result(reason), row.failed, v)
				require.NoError(t, err)
				stored := a.stored()
				require.Equal(t, row.before, named(stored))
				ended := run.Records(time.Time{})
				require.Equal(t, row.end, named(ended))
				require.Equal(t, a.Pending.Emitted+1+int64(len(stored)), ended[0].RunSeq)
				a.requireDrawn(ended)
				require.True(t, a.closed())
				if first == nil {
					first = run
				}
				require.Equal(t, first.Events[0].EventID, run.Events[0].EventID)
				if row.failed != nil {
					require.Contains(t, string(ended[0].Payload), `"code":"LATE"`)
				}
			}
		})
	}
}

// What another server has stored of the end already is not said a second time.
func TestTheEndSaysNothingTwice(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*accepted) (*runevents.Run, error){
		"RunFailed 1": func(a *accepted) (*runevents.Run, error) {
			return a.End(t.Context(), a.Run, a.result("PLUGIN_TIMEOUT"), a.Pending.Last,
				&apply.Result{})
		},
		"RunCancelled 1": func(a *accepted) (*runevents.Run, error) {
			return a.Cancel(t.Context(), a.Run, lifecycle.Cancellation{})
		},
	} {
		a := accept(t)
		a.goOn(2)
		require.NoError(t, a.RecordAttempts(t.Context(), a.Run, false))
		a.Pending.Attempt = 1 // as a server knows it that is behind
		run, err := end(a)
		require.NoError(t, err)
		require.Equal(t, []string{"StepFailed 1"}, named(a.stored()))
		require.Equal(t, []string{name}, named(run.Records(time.Time{})))
	}
}

// A run that is paused goes on before what cannot be in a pause, and not before what can.
func TestAPausedRunGoesOnBeforeWhatCannotBeInAPause(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		then func(*accepted) error
		want []string
	}{
		{"an attempt failed", func(a *accepted) error {
			a.goOn(2)
			return a.RecordAttempts(t.Context(), a.Run, false)
		}, []string{"RunPaused 1", "StepFailed 1"}},
		{"an attempt starts", func(a *accepted) error {
			a.goOn(2)
			return a.RecordAttempts(t.Context(), a.Run, true)
		}, []string{"RunPaused 1", "RunResumed 1", "StepFailed 1", "StepStarted 2"}},
		{"the outcome is there", func(a *accepted) error {
			_, err := a.end()
			return err
		}, []string{"RunPaused 1", "RunResumed 1"}},
		{"it is cancelled", func(a *accepted) error {
			_, err := a.Cancel(t.Context(), a.Run, lifecycle.Cancellation{SignalID: "s"})
			return err
		}, []string{"RunPaused 1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := accept(t)
			a.hold(repairs)
			require.NoError(t, row.then(a))
			require.Equal(t, row.want, named(a.stored()))
		})
	}
}

func TestARunIsCancelled(t *testing.T) {
	t.Parallel()
	a := accept(t)
	a.goOn(2)
	why := lifecycle.Cancellation{SignalID: "s", Reason: "a mistake"}
	for range 2 { // the first record of it may not have been stored
		run, err := a.Cancel(t.Context(), a.Run, why)
		require.NoError(t, err)
		ended := run.Records(time.Time{})
		require.Equal(t, []string{"StepFailed 2", "RunCancelled 1"}, named(ended))
		require.Contains(t, string(ended[0].Payload), lifecycle.CancelledInHand)
		require.JSONEq(t, `{"signalId":"s","reason":"a mistake"}`, string(ended[1].Payload))
		require.Equal(t, []string{"StepFailed 1", "StepStarted 2"}, named(a.stored()))
		require.True(t, a.closed())
	}
}

// Of a run that was cancelled where it waited nothing is recorded any more.
func TestACancelledRunDoesNotGoOn(t *testing.T) {
	t.Parallel()
	a := accept(t)
	p := logtest.NewProducer(a.Pending.Run)
	p.ResumeAt(runevents.RunRunning)
	require.NoError(t, p.OfRun(runevents.RunCancelled, nil))
	_, err := a.Runs.Extend(t.Context(), a.TownID, p.Run(), a.Pending.Emitted, true)
	require.NoError(t, err)
	a.goOn(2)
	require.ErrorIs(t, a.RecordAttempts(t.Context(), a.Run, true), runs.ErrRunCancelled)
	_, err = a.end()
	require.ErrorIs(t, err, runs.ErrRunCancelled)
	_, err = a.Cancel(t.Context(), a.Run, lifecycle.Cancellation{})
	require.ErrorIs(t, err, runs.ErrRunCancelled)
}

// Each pause is told once, with who paused, and so is its end.
func TestPausesAreTold(t *testing.T) {
	t.Parallel()
	a := accept(t)
	for _, step := range []struct {
		by   *commitlog.PausedBy
		want []string
	}{
		{nil, []string{}},
		{repairs, []string{"RunPaused 1"}},
		{repairs, []string{"RunPaused 1"}},
		{nil, []string{"RunPaused 1", "RunResumed 1"}},
		{nil, []string{"RunPaused 1", "RunResumed 1"}},
		{repairs, []string{"RunPaused 1", "RunResumed 1", "RunPaused 2"}},
		{nil, []string{"RunPaused 1", "RunResumed 1", "RunPaused 2", "RunResumed 2"}},
	} {
		a.hold(step.by)
		require.Equal(t, step.want, named(a.stored()))
	}
	require.JSONEq(t, `{"signalId":"signal","reason":"repairs"}`, string(a.stored()[0].Payload))
	_, err := a.end()
	require.NoError(t, err)
	told := len(a.stored())
	require.NoError(t, a.Hold(t.Context(), a.TownID, a.Pending, repairs, nil),
		"it is not asked about")
	require.Len(t, a.stored(), told, "the run ends")
}

// What a pause was when it was read does not count where it is another one now.
func TestAPauseIsReadAgain(t *testing.T) {
	t.Parallel()
	a := accept(t)
	as := func(by *commitlog.PausedBy, err error) func() (*commitlog.PausedBy, error) {
		return func() (*commitlog.PausedBy, error) { return by, err }
	}
	hold := func(by *commitlog.PausedBy, reread func() (*commitlog.PausedBy, error)) error {
		return a.Hold(t.Context(), a.TownID, a.Pending, by, reread)
	}
	trouble := errors.New("no answer")
	require.ErrorIs(t, hold(repairs, as(nil, trouble)), trouble)
	require.NoError(t, hold(repairs, as(nil, nil)), "it is over")
	require.Empty(t, a.stored())
	later := &commitlog.PausedBy{SignalID: "later"}
	require.NoError(t, hold(repairs, as(later, nil)))
	require.JSONEq(t, `{"signalId":"later"}`, string(a.stored()[0].Payload))
	require.ErrorIs(t, hold(nil, as(nil, trouble)), trouble)
	require.NoError(t, hold(nil, as(repairs, nil)), "it was paused again")
	require.Equal(t, []string{"RunPaused 1"}, named(a.stored()))
}

// Two servers that tell of a pause at once tell of it once.
func TestTwoServersTellOfAPause(t *testing.T) {
	t.Parallel()
	a := accept(t)
	other := *a.Store
	err := a.Hold(t.Context(), a.TownID, a.Pending, repairs,
		func() (*commitlog.PausedBy, error) {
			if len(a.stored()) == 0 { // the other one is first
				require.NoError(t, other.Hold(t.Context(), a.TownID, a.Pending, repairs,
					func() (*commitlog.PausedBy, error) { return repairs, nil }))
			}
			return repairs, nil
		})
	require.NoError(t, err)
	require.Equal(t, []string{"RunPaused 1"}, named(a.stored()))
}

// Where the log does not answer nothing counts as recorded.
func TestALogThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	a := accept(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	a.goOn(2)
	require.ErrorIs(t, a.RecordAttempts(over, a.Run, true), commitlog.ErrLogUnavailable)
	_, err := a.End(over, a.Run, a.result(""), nil, &apply.Result{Applied: true})
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
	require.ErrorIs(t, a.Hold(over, a.TownID, a.Pending, repairs, nil),
		commitlog.ErrLogUnavailable)
}
