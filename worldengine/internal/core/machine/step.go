// Package machine decides about a town, and makes the run events of its decisions (RunEvents v2,
// ExecutionSemantics v2). Step is pure: it has no clock, no randomness, no I/O and no goroutine, so
// the same town and the same input give the same record, byte for byte. Time and ids come with the
// input; the engine commits the record.
//
//	Town, Input ── Step ──> Record, the next town, the answer
package machine

import (
	"bytes"
	"cmp"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
)

// Output is the effect of an input. Its records are stored in the order First, Record, Reopen; nil for none.
// Each one but Reopen MUST be stored before the next one is, and before the rest of the output is valid.
type Output struct {
	// First is on the run's own subject. It closes the run to others, if Record ends the run or may end it:
	// no event of others follows the end. It also has the events before the events of Record.
	First *Record
	// Record is the decision, and goes to Subject.
	Record  *Record
	Subject Subject
	// Unguarded says that Record is valid whatever happens to the town meanwhile.
	Unguarded bool
	// Reopen, on the run's own subject, lets others append to the run again. A run that stays closed loses
	// nothing, so the input has its effect even if Reopen cannot be stored.
	Reopen *Record
	// After is the town after a Record on its subject.
	After Town
	// Answer is the answer to a handoff; nil if a game is to apply its command.
	Answer *Answer
	// Decided is the proposal that was decided about, with the decision.
	Decided *approval.Request
	// Refused is the reason why a signal is refused.
	Refused *approval.Refusal
}

// Subject is the subject of the log that a record goes to.
type Subject int

// The subjects.
const (
	TownSubject    Subject = iota // the town's own, guarded by its last message
	RefusedSubject                // refused runs of the town, or of unknown towns
	SignalSubject                 // signals that change no town
	RunSubject                    // the run's own, guarded by its tail
	ControlSubject
)

// Answer is the answer to a handoff.
type Answer struct {
	// RunID is the run that judged this delivery.
	RunID string
	// Result is the decision and JSON its bytes on the wire.
	Result *handoff.Result
	JSON   []byte
	// Embodiment is how a game embodied the command; nil if unknown.
	Embodiment jsontext.Value
	// Failed is the failure of the last attempt by a game; nil if the rules decided, or the game
	// applied the command.
	Failed *apply.Failure
	// First is the receipt of the first result, if Result is a duplicate; else nil.
	First *dedupe.Receipt
}

// Step returns the effect of an input on a town. A put, a patch or a removal is refused with an
// error of town.State.CheckReplace, a *schemas.ValidationError or town.ErrUnknown. ErrBusy refuses an
// input for now, ErrRunCancelled for good. Any other error is a defect.
func Step(t Town, in *Input, settings *Settings) (Output, error) {
	s := &step{Settings: settings, town: t, in: in, ids: in.IDs, tail: in.Tail}
	return in.Event.effect(s)
}

// step is one call of Step.
type step struct {
	*Settings
	town Town
	in   *Input
	ids  []string // not used yet
	tail *RunTail // the input's, with the records of the step on the run's own subject; nil without one
}

// producer returns a producer of the events of a run, at the time of the input.
func (s *step) producer(run runevents.Identity) *runlog.Producer {
	p := runlog.NewProducer(run, runlog.Source{
		Now: func() time.Time { return s.in.At }, NewID: s.newID,
	})
	p.UseIDs(s.in.Drawn)
	return p
}

// newID returns the next unused id. After the last one it returns "", which producers refuse.
func (s *step) newID() string {
	if len(s.ids) == 0 {
		return ""
	}
	id := s.ids[0]
	s.ids = s.ids[1:]
	return id
}

// judgement is a handoff on its way to a record.
type judgement struct {
	*Handoff
	encoded  []byte // MarshalWire of the handoff; nil if no approval needs it, and Sent is set
	producer *runlog.Producer
}

// ErrBusy: the town is paused, or a command is being applied to it. The input has to wait.
var ErrBusy = errors.New("machine: the town is paused, or a command is being applied to it")

// effect judges a handoff. A run that waited is closed first.
func (input *Handoff) effect(s *step) (Output, error) {
	delivery := *input // the input stays unchanged
	e := &delivery
	if !e.DryRun && (s.town.Pending != nil || s.town.Paused != nil) {
		return Output{}, ErrBusy
	}
	first, err := s.closeWaiting(e)
	if err != nil {
		return Output{}, err
	}
	out, err := s.judge(e)
	out.First = first
	return out, err
}

// closeWaiting closes the run of a handoff that waited, and has e go on with the run. The record is nil if
// the handoff did not wait, or its run is closed.
func (s *step) closeWaiting(e *Handoff) (*Record, error) {
	if s.tail == nil {
		return nil, nil
	}
	var closed Output
	var err error
	if !s.tail.Closed || s.tail.Cancelled {
		closed, err = (&Wait{Handoff: e.Handoff, Run: e.Run, Begin: e.Begin, Closing: true}).effect(s)
	}
	e.Begin.status = s.tail.Status
	return closed.Record, err
}

// judge makes the checks in their order, and applies the rules and the approval policy.
func (s *step) judge(e *Handoff) (Output, error) {
	j := &judgement{Handoff: e, producer: s.producer(e.Run)}
	policy := cmp.Or(s.town.Policy, &s.Policy)
	asks := policy.Requires(e.Handoff.Proposal.Type)
	if asks || len(s.town.Approvals) > 0 || e.Sent == nil {
		var err error
		if j.encoded, err = e.Handoff.MarshalWire(); err != nil {
			return Output{}, err
		}
	}
	if e.Sent = bytes.TrimSpace(e.Sent); e.Sent == nil {
		e.Sent = j.encoded
	}
	if s.tail != nil {
		j.producer.ResumeAt(cmp.Or(s.tail.Status, runevents.RunStatusPending))
		j.producer.Persisted(s.tail.Next)
	}
	checked := Check(e.Handoff, e.Prior, s.town.State)
	if !checked.Accepted {
		return s.refuse(j, checked.Outcome)
	}
	after, reason := s.Rules.Apply(s.town.State.Snapshot, &e.Handoff.Proposal)
	if reason != "" { // nobody is asked to approve it
		return s.conclude(j, checked.Failed(reason, s.town.State), s.town.State)
	}
	if asks {
		gate := s.town.Approvals.Judge(*policy, e.Handoff, j.encoded, s.in.At.UTC())
		if gate.Reason != "" {
			return s.unapproved(j, checked.Unapproved(gate.Reason, gate.Detail), gate.Enqueue)
		}
		e.Begin.Approval = &Approval{
			SignalID: gate.Approved.SignalID, ActorID: gate.Approved.ActorID,
			Reason: gate.Approved.Reason, At: gate.At,
		}
	}
	via := cmp.Or(s.town.Apply, s.Apply)
	if via == apply.Local || e.DryRun {
		return s.conclude(j, checked.Executed(after), after)
	}
	return s.accept(j, &checked.Outcome.Evaluation, after, via)
}

// answer returns the answer of an outcome, and its record. It emits the events of the whole run.
func (s *step) answer(j *judgement, kind Kind, outcome handoff.Outcome) (*Answer, *Record, error) {
	result := handoff.NewResult(j.Handoff.Handoff, outcome)
	encoded, err := result.MarshalWire()
	if err != nil {
		return nil, nil, err
	}
	if err := EmitRun(j.producer, j.Handoff.Handoff, result, j.Begin); err != nil {
		return nil, nil, err
	}
	return &Answer{RunID: j.Run.RunID, Result: result, JSON: encoded}, &Record{
		Kind: kind, TownID: s.in.TownID, Result: encoded, Decision: result, Handoff: j.Sent,
		Run: j.producer.Run(), RetryOf: j.RetryOf,
	}, nil
}

// refuse returns the record of a handoff that changes no town and consumes no key.
func (s *step) refuse(j *judgement, outcome handoff.Outcome) (Output, error) {
	answer, rec, err := s.answer(j, KindRefused, outcome)
	if err != nil {
		return Output{}, err
	}
	answer.First = j.Prior
	return Output{
		Record: rec, Subject: RefusedSubject, Answer: answer,
		// A duplicate stays a duplicate: its key keeps the receipt.
		Unguarded: outcome.Status == handoff.Duplicate && !apply.MayBeRetried(j.Prior.ReasonCode),
	}, nil
}

// unapproved returns the record of a handoff without a person's approval. If ask is set, the
// handoff waits for a decision from then on.
func (s *step) unapproved(j *judgement, outcome handoff.Outcome, ask bool) (Output, error) {
	if !ask {
		return s.refuse(j, outcome)
	}
	answer, rec, err := s.answer(j, KindAsked, outcome)
	if err != nil {
		return Output{}, err
	}
	rec.WorldPolicy = s.worldPolicy()
	after := s.town
	after.Approvals = after.Approvals.Add(j.Handoff.Handoff, j.encoded, j.Run.Trace,
		s.in.At.UTC(), s.ApprovalTimeout)
	return Output{Record: rec, After: after, Answer: answer}, nil
}

// conclude returns the record of an accepted handoff that was executed, or failed, by the rules.
func (s *step) conclude(j *judgement, outcome handoff.Outcome, state town.State) (Output, error) {
	answer, rec, err := s.answer(j, KindHandoff, outcome)
	if err != nil {
		return Output{}, err
	}
	addition := handoff.AdditionOf(j.Handoff.Handoff)
	rec.Addition, rec.WorldPolicy, rec.Rules = &addition, s.worldPolicy(), s.amounts()
	after := s.town
	after.State = state
	after.Approvals = after.Approvals.MarkUsed(j.Handoff.Handoff, j.encoded, answer.RunID)
	return Output{Record: rec, After: after, Answer: answer}, nil
}

// accept returns the first record of an accepted handoff whose command a game has to apply.
func (s *step) accept(
	j *judgement, evaluation *handoff.Evaluation, expected town.State, via apply.Binding,
) (Output, error) {
	err := EmitAccepted(j.producer, j.Handoff.Handoff, evaluation, j.Begin)
	if err != nil {
		return Output{}, err
	}
	run, at, after := j.producer.Run(), s.in.At.UTC(), s.town
	after.Approvals = after.Approvals.MarkUsed(j.Handoff.Handoff, j.encoded, run.RunID)
	p := &apply.Pending{
		Binding: via, Handoff: j.Sent, Expected: expected.Canonical, RetryOf: j.RetryOf,
		Run: run.Identity, Emitted: run.FirstSeq + int64(len(run.Events)) - 1,
		Accepted: at, Attempt: 1, NotBefore: at, Deadline: at.Add(s.Plugin.Deadline),
	}
	p.EventIDs, err = runlog.DrawIDs(p.Run, s.newID, s.in.Drawn, NextEvents(1)...)
	after.Pending = p
	out := Output{Record: &Record{
		Kind: KindPending, TownID: s.in.TownID, Run: run,
		WorldPolicy: s.worldPolicy(), Rules: s.amounts(),
	}, After: after}
	if s.tail != nil {
		out.Reopen = s.runRecord(p.Run, nil, false)
		out.Reopen.Run.FirstSeq = p.Emitted + 1
	}
	return out, err
}

func (s *step) worldPolicy() *approval.Policy { return s.Policy.Inherited(s.town.Policy) }

// amounts returns the Rules for a record: nil for the default amounts.
func (s *step) amounts() *town.Rules {
	if *s.Rules == town.DefaultRules() {
		return nil
	}
	return s.Rules
}

func (e *Put) effect(s *step) (Output, error) {
	if s.town.Pending != nil {
		return Output{}, ErrBusy
	}
	if err := e.State.CheckReplace(s.town.State, e.Expected); err != nil {
		return Output{}, err
	}
	if err := s.town.mayReturn(e.State); err != nil {
		return Output{}, err
	}
	after := s.town
	after.State, after.Removed = e.State, nil
	after.Apply = cmp.Or(e.Apply, after.Apply)
	after.Policy = cmp.Or(e.Approval, after.Policy)
	return Output{
		Record: &Record{Kind: KindPut, TownID: s.in.TownID, ActorID: e.ActorID}, After: after,
	}, nil
}

func (e *Patch) effect(s *step) (Output, error) {
	if err := s.town.State.CheckHash(e.Expected); err != nil {
		return Output{}, err
	}
	state, err := s.town.State.Patch(e.Patch)
	if err != nil {
		return Output{}, schemas.Nest(schemas.TownPatchRequest, err, "patch")
	}
	return (&Put{state, e.Expected, e.Attributes, e.ActorID}).effect(s)
}

func (e *Remove) effect(s *step) (Output, error) {
	switch {
	case !s.town.State.Exists():
		return Output{}, town.ErrUnknown
	case s.town.Pending != nil:
		return Output{}, ErrBusy
	}
	last := s.town.State
	return Output{
		Record: &Record{Kind: KindRemove, TownID: s.in.TownID, ActorID: e.ActorID},
		After:  Town{Removed: &last, LoadedSeq: s.town.LoadedSeq},
	}, nil
}
