package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The run of a command that a game applies is PAUSED while its town or the world is paused.
// RunPaused, RunResumed and the events of attempts are on the run's own subject, to which others
// append too. So the engine closes the run there before it stores the run's end on the town's
// subject.

// EndAttempt is the end of an attempt to apply the pending command. MayHaveReached also covers the requests
// of earlier attempts. LastAttempt says that there is no room for another attempt, so the run ends with this one.
type EndAttempt struct {
	apply.AttemptResult
	LastAttempt bool
}

// RecordReach records that a request for the pending command may have reached a game (MayHaveReached), or that
// the writer stops and none has (StoppedUnreached). If neither is set, the record only moves the town's guard, so
// that other writers lose their races.
type RecordReach struct{ MayHaveReached, StoppedUnreached bool }

// RecordAttempt says that the pending command's previous attempt has failed and, if Started is set, that
// the present one has started.
type RecordAttempt struct{ Started bool }

// PauseRun pauses the run of the pending command, or resumes it if By is nil.
type PauseRun struct{ By *messages.PausedBy }

// Cancel ends the run of a handoff that waits, or of the pending command, without a result.
type Cancel struct {
	Signal *Signal
	// Reach is whether a request that this writer sent may have arrived.
	Reach apply.Reach
}

var errNotPending = errors.New("machine: no command is being applied to the town")

// pendingProducer reads the pending command. It returns a producer of the command's run that has emitted
// the events of the attempts.
func (s *step) pendingProducer(started bool) (apply.DecodedPending, *runlog.Producer, error) {
	if s.town.Pending == nil {
		return apply.DecodedPending{}, nil, errNotPending
	}
	if s.tail.Cancelled {
		return apply.DecodedPending{}, nil, ErrRunCancelled
	}
	command, err := s.town.Pending.Decode()
	if err != nil {
		return command, nil, err
	}
	p := s.producer(command.Pending.Run)
	if err := emitResumed(p, command.Pending, started); err != nil {
		return command, nil, err
	}
	p.UseIDs(slices.Concat(command.Pending.EventIDs, s.in.Drawn))
	return command, p, nil
}

func (*RecordAttempt) MaxIDs() int { return maxRunIDs }

func (*RecordAttempt) TailRun(t *Town) (runID string, emitted int64) { return pendingTail(t) }

func (e *RecordAttempt) effect(s *step) (Output, error) {
	_, p, err := s.pendingProducer(e.Started)
	if err != nil {
		return Output{}, err
	}
	rec, err := s.missingRecord(p.Run(), false, "")
	return Output{Record: rec}, err
}

// missingRecord returns a record of the events that the run's own subject lacks; no record if it lacks
// none. If ends is set, the record also closes the run. A paused run is resumed before an attempt
// starts and, if reason is set, before the end. A run that a cancellation closed in its pause is
// not resumed.
func (s *step) missingRecord(run *runlog.Run, ends bool, reason string) (rec *Record, err error) {
	tail := s.tail
	fresh := tail.NewEvents(run)
	starts := func(e runlog.Event) bool { return e.EventType == runevents.StepStarted }
	if s.runPaused() && (slices.ContainsFunc(fresh, starts) || reason != "" && !tail.Closed) {
		resumed, err := s.resumeEvents(reason)
		if err != nil {
			return nil, err
		}
		fresh = append(resumed, fresh...)
	}
	if len(fresh) == 0 && (!ends || tail.Closed) {
		return nil, nil
	}
	purpose := PurposeProgress
	if ends || tail.Closed {
		purpose = PurposeRunClosing
	}
	return s.runRecord(run.Identity, fresh, purpose), nil
}

// runOutput returns the output of a record on a run's own subject.
func (s *step) runOutput(run runevents.Identity, events []runlog.Event, purpose Purpose) Output {
	return Output{Record: s.runRecord(run, events, purpose)}
}

// runRecord returns a record behind a run's tail, which it moves on.
func (s *step) runRecord(run runevents.Identity, events []runlog.Event, purpose Purpose) *Record {
	rec := &Record{Kind: KindRunEvents, Purpose: purpose, TownID: s.in.TownID,
		Closing: purpose == PurposeEndOfWait || purpose == PurposeRunClosing,
		Run:     &runlog.Run{Identity: run, FirstSeq: s.tail.Next, Events: events}}
	s.tail = s.tail.clone() // the input stays unchanged
	s.tail.Add(rec, 0)
	return rec
}

// runPaused reports whether the run of the pending command is paused.
func (s *step) runPaused() bool { return s.tail.PausedAt > s.town.Pending.Emitted }

// resumeEvents returns the events that resume a paused run.
func (s *step) resumeEvents(reason string) ([]runlog.Event, error) {
	p := s.producer(s.town.Pending.Run)
	p.ResumeAt(runevents.RunStatusPaused)
	err := emitReleased(p, s.tail.Pauses, reason)
	return p.Run().Events, err
}

// outcomeKnown is the reason for which a paused run is resumed when its command has an outcome. The
// run ends then, even in a pause (Execution Semantics v1, section 6, option A).
const outcomeKnown = "What became of the command is known: the run ends."

func (*PauseRun) MaxIDs() int { return maxRunIDs }

func (*PauseRun) TailRun(t *Town) (runID string, emitted int64) { return pendingTail(t) }

func (e *PauseRun) effect(s *step) (Output, error) {
	pending, tail := s.town.Pending, s.tail
	if pending == nil || tail.Closed || s.runPaused() == (e.By != nil) {
		return Output{}, nil
	}
	if e.By == nil {
		events, err := s.resumeEvents("")
		return s.runOutput(pending.Run, events, PurposeProgress), err
	}
	p := s.producer(pending.Run)
	p.ResumeAt(runevents.RunStatusRunning)
	err := p.Emit(runlog.Emission{Type: runevents.RunPaused, Attempt: tail.Pauses + 1,
		Payload: pausedPayload{SignalID: e.By.SignalID, Reason: e.By.Reason}})
	return s.runOutput(pending.Run, p.Run().Events, PurposeRunPause), err
}

func (*RecordReach) MaxIDs() int { return 0 }

func (*RecordReach) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *RecordReach) effect(s *step) (Output, error) {
	if s.town.Pending == nil {
		return Output{}, errNotPending
	}
	after, p, purpose := s.town, *s.town.Pending, PurposeReach
	p.MayHaveReached = p.MayHaveReached || e.MayHaveReached
	p.StoppedUnreached = e.StoppedUnreached && !p.MayHaveReached
	if p.StoppedUnreached && !s.town.Pending.StoppedUnreached {
		purpose = PurposeUnreached
	}
	after.Pending = &p
	return Output{
		Record: &Record{Kind: KindPending, Purpose: purpose, TownID: s.in.TownID}, NextTown: after,
	}, nil
}

func (*EndAttempt) MaxIDs() int { return maxRunIDs }

func (*EndAttempt) TailRun(t *Town) (runID string, emitted int64) { return pendingTail(t) }

// effect handles an attempt's end: the run ends, or there is another attempt.
func (e *EndAttempt) effect(s *step) (Output, error) {
	command, producer, err := s.pendingProducer(true)
	if err != nil {
		return Output{}, err
	}
	ended := e.AttemptResult
	if !ended.Applied && ended.Failure.Reason == apply.ReasonGameUnavailable &&
		!command.Pending.Binding.Spec().SingleRequest &&
		(ended.MayHaveReached || command.Pending.MayHaveReached) {
		// A run counts as unreached only if no request at all can have arrived, since an operator
		// may retry such a run (docs/adr/0026-a-retry-is-another-run.md).
		ended.Failure, ended.MayHaveReached = apply.NoAnswer(true, nil), true
	}
	after, failed := town.State{}, ended.Failure
	if ended.Applied {
		after, failed = reported(command.Expected, ended.Snapshot)
	}
	last := e.LastAttempt || command.Pending.Attempt >= s.Retry.Attempts
	if failed == nil || !failed.Retryable || last {
		return s.end(&command, producer, after, failed, &ended)
	}
	// The next Pending has the latest failure alone: store the events of earlier ones first.
	first, err := s.missingRecord(producer.Run(), false, "")
	if err != nil {
		return Output{}, err
	}
	failed.At = ended.At
	p := command.Pending.NextAttempt(*failed, ended.MayHaveReached, s.in.At, &s.Retry)
	p.EventIDs, err = runlog.DrawIDs(p.Run, s.newID, slices.Concat(p.EventIDs, s.in.Drawn),
		NextEvents(p.Attempt)...)
	next := s.town
	next.Pending = p
	return Output{
		RunRecordBefore: first,
		Record:          &Record{Kind: KindPending, Purpose: PurposeNextAttempt, TownID: s.in.TownID}, NextTown: next,
	}, err
}

// end returns the record that ends the run of the pending command with a result. The town's next
// state is state, unless the last attempt failed.
func (s *step) end(
	command *apply.DecodedPending, producer *runlog.Producer, state town.State, failed *apply.Failure,
	ended *apply.AttemptResult,
) (Output, error) {
	if command.Handoff.Requirements.ExpectedSnapshotHash != s.town.State.Hash {
		return Output{}, fmt.Errorf("machine: the state of the town changed while run %s was pending",
			command.Pending.Run.RunID)
	}
	checked, after, outcome := acceptance(&s.town.State), s.town, handoff.Outcome{}
	addition := handoff.AdditionOf(command.Handoff)
	after.Pending = nil
	if failed == nil {
		after.State, outcome = state, checked.Executed(state)
		addition.Embodiment = embodied(ended.Embodiment)
	} else {
		outcome = checked.Failed(failed.Reason, s.town.State)
	}
	result := handoff.NewResult(command.Handoff, outcome)
	encoded, err := result.MarshalWire()
	if err != nil {
		return Output{}, err
	}
	first, err := s.closeRun(producer, outcomeKnown)
	err = cmp.Or(err, emitEnd(producer, result, command.Pending.Attempt, failed, ended))
	return Output{
		RunRecordBefore: first,
		Record: &Record{
			Kind: KindConcluded, Purpose: PurposeConclusion, TownID: s.in.TownID, Run: s.missingEvents(producer),
			Result: encoded, DecodedResult: result, Handoff: command.Pending.Handoff, Addition: &addition,
			RetryOf: command.Pending.RetryOf,
		},
		NextTown: after,
		Answer: &Answer{RunID: command.Pending.Run.RunID, Result: result, JSON: encoded,
			Embodiment: addition.Embodiment, Failed: failed},
	}, err
}

// reported returns the state after an applied command: the expected state, or the state that the
// game reported. It raises the day of a reported state to the expected day.
func reported(expected town.State, snapshot jsontext.Value) (town.State, *apply.Failure) {
	if snapshot == nil {
		return expected, nil
	}
	invalid := func(message string) (town.State, *apply.Failure) {
		return town.State{}, &apply.Failure{Reason: apply.ReasonPluginStateInvalid, Message: message,
			Retryable: true}
	}
	state, err := town.Parse(snapshot, schemas.Limits{})
	if err != nil {
		return invalid("The reported state is not a snapshot.v1: " + phrase.Sentence(err))
	}
	if got, want := state.Snapshot.TownID, expected.Snapshot.TownID; got != want {
		return invalid(fmt.Sprintf("The reported state is of the town %q, not of %q.", got,
			want))
	}
	if state.Epoch() < expected.Epoch() {
		moved := *state.Snapshot
		moved.Day = expected.Epoch()
		state = town.NewState(&moved)
	}
	return state, nil
}

// maxEmbodiment bounds an embodiment in bytes: it is stored with the result.
const maxEmbodiment = 16 << 10

// embodied returns a result's embodiment, or nil for one that is too large, or is not
// {backendHint?: string|null, actions?: [object]}. It drops other members.
func embodied(reported jsontext.Value) jsontext.Value {
	if reported == nil || len(reported) > maxEmbodiment {
		return nil
	}
	var known struct {
		BackendHint jsontext.Value `json:"backendHint,omitzero"`
		Actions     jsontext.Value `json:"actions,omitzero"`
	}
	if err := json.Unmarshal(reported, &known); err != nil {
		return nil
	}
	if hint := known.BackendHint; hint != nil && hint.Kind() != '"' && hint.Kind() != 'n' {
		return nil
	}
	if known.Actions != nil && !isObjects(known.Actions) {
		return nil
	}
	data, err := json.Marshal(known)
	if err != nil {
		return nil
	}
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return nil
	}
	// A number may be longer in its canonical form.
	if canonical := handoff.AppendCanonical(nil, tree); len(canonical) <= maxEmbodiment {
		return canonical
	}
	return nil
}

// isObjects reports whether a JSON value is a list of objects.
func isObjects(value jsontext.Value) bool {
	var list []jsontext.Value
	return value.Kind() == '[' && json.Unmarshal(value, &list) == nil &&
		!slices.ContainsFunc(list, func(v jsontext.Value) bool { return v.Kind() != '{' })
}

// closeRun prepares the end of the pending command's run. It returns the record that closes the run to
// others; nil if the run is closed. It makes the producer go on after the stored events, and resumes a paused
// run if reason is set.
func (s *step) closeRun(producer *runlog.Producer, reason string) (first *Record, err error) {
	if first, err = s.missingRecord(producer.Run(), true, reason); err != nil {
		return nil, err
	}
	producer.StartBatch(s.tail.Next)
	if s.runPaused() && reason != "" {
		producer.ResumeAt(runevents.RunStatusPaused)
		err = emitReleased(producer, s.tail.Pauses, reason)
	}
	return first, err
}

// missingEvents returns a run with the events that its own subject lacks.
func (s *step) missingEvents(producer *runlog.Producer) *runlog.Run {
	last := *producer.Run()
	last.Events = s.tail.NewEvents(&last)
	return &last
}

// Why a run whose command is pending is not cancelled without force.
const (
	byForce        = "look at the game; with force the run is cancelled all the same"
	mayHaveArrived = "a request for the command of the run may have reached a game: " + byForce
	notKnown       = "it is not known yet whether a request for the command of the run has reached a " +
		"game: try again, or " + byForce
)

func (*Cancel) MaxIDs() int { return maxRunIDs }

func (e *Cancel) TailRun(t *Town) (runID string, emitted int64) {
	if runID, emitted = pendingTail(t); runID == e.Signal.RunID {
		return runID, emitted
	}
	return e.Signal.RunID, 0
}

// effect ends a run that waits. It ends the run of the pending command if no request for the command can
// have reached a game, or if the signal has Force.
func (e *Cancel) effect(s *step) (Output, error) {
	p := s.town.Pending
	refuse := func(code wire.Code, message string) (Output, error) {
		return s.refuseSignal(e.Signal, &approval.SignalRefusal{Code: code, Message: message})
	}
	cancellation := Cancellation{SignalID: e.Signal.Run.RunID, Reason: e.Signal.Reason}
	switch isPending := p != nil && p.Run.RunID == e.Signal.RunID; {
	case !isPending && s.tail.isWaiting():
		return (&CancelWaiting{Run: s.tail.FirstRecord.Run.Identity, Why: cancellation}).effect(s)
	case !isPending:
		return refuse(wire.CodeRunNotWaiting, "there is nothing to cancel: no run with this id "+
			"waits, and none has a command that is being applied; it has ended, or there is no such "+
			"run")
	case e.Signal.Force && p.RetryOf != nil:
		return s.failByForce(e.Signal.ActorID)
	case e.Signal.Force:
		cancellation.Code = CancelledByForce
	case p.MayHaveReached || e.Reach == apply.MayHaveReached:
		return refuse(wire.CodeRunInHand, mayHaveArrived)
	case e.Reach == apply.ReachUnknown:
		return refuse(wire.CodeRunInHand, notKnown)
	}
	_, producer, err := s.pendingProducer(true)
	if err != nil {
		return Output{}, err
	}
	// A paused run is cancelled without being resumed.
	first, err := s.closeRun(producer, "")
	err = cmp.Or(err, emitCancelledInHand(producer, p.Attempt, cancellation))
	after := s.town
	after.Pending = nil
	return Output{
		RunRecordBefore: first,
		Record: &Record{Kind: KindCancelled, Purpose: PurposeCancellation, TownID: s.in.TownID,
			Run: s.missingEvents(producer)},
		NextTown: after,
	}, err
}

// failByForce ends a pending retry's run with the result that its command may be applied. If the
// run were cancelled, the key would keep the retried run's result, by which nothing was applied. An
// operator could then retry that run again, and the command could be applied twice.
func (s *step) failByForce(actorID string) (Output, error) {
	doubt := s.town.Pending.Binding.FailInDoubt(actorID + " ended the run by force; a game may have applied its command.")
	doubt.At, doubt.Attempt = s.in.At, s.town.Pending.Attempt
	return (&EndAttempt{AttemptResult: doubt}).effect(s)
}
