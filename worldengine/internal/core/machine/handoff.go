package machine

import (
	"bytes"
	"cmp"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
)

// Judge is the delivery of a valid handoff to a town that is not paused and has no pending
// command.
type Judge struct {
	Handoff *handoff.Handoff
	// Sent are the bytes from which Handoff was parsed, for the record. If Sent is nil, the record
	// gets the bytes of Handoff.MarshalWire.
	Sent []byte
	// Prior is the receipt of the key, nil if the key is free, or if the delivery retries the
	// receipt's run.
	Prior *dedupe.Receipt
	// Run is the run of the delivery, and Start its start. Recorded reports that the run's own subject
	// may have records of the run, since the handoff waited.
	Run      runevents.Identity
	Start    RunStart
	Recorded bool
	// RetryOf is the run that Run retries; nil if none.
	RetryOf *apply.RetryOf
	// DryRun asks for the answer by the built-in rules, whatever the town's binding is.
	DryRun bool
}

// judgement is a handoff on its way to a record.
type judgement struct {
	*Judge
	encoded  []byte // MarshalWire of the handoff; nil if no approval needs it, and Sent is set
	producer *runlog.Producer
}

// MaxIDs counts the events of an approved retry that waited for its town, and the events of NextEvents.
func (*Judge) MaxIDs() int { return 15 }

func (e *Judge) TailRun(*Town) (runID string, emitted int64) {
	if e.Recorded {
		return e.Run.RunID, 0
	}
	return "", 0
}

// effect judges a handoff. A run that waited is closed first.
func (input *Judge) effect(s *step) (Output, error) {
	judge := *input // the input stays unchanged
	e := &judge
	if !e.DryRun && (s.town.Pending != nil || s.town.Paused != nil) {
		return Output{}, ErrBusy
	}
	first, err := s.closeWaiting(e)
	if err != nil {
		return Output{}, err
	}
	out, err := s.judge(e)
	out.RunRecordBefore = first
	return out, err
}

// closeWaiting closes the run of a handoff that waited, and has e go on with the run. The record is nil if
// the handoff did not wait, or its run is closed.
func (s *step) closeWaiting(e *Judge) (*Record, error) {
	if s.tail == nil {
		return nil, nil
	}
	var closed Output
	var err error
	if !s.tail.Closed || s.tail.Cancelled {
		closed, err = (&Wait{Handoff: e.Handoff, Run: e.Run, Start: e.Start, Closing: true}).effect(s)
	}
	e.Start.status = s.tail.Status
	return closed.Record, err
}

// judge makes the checks in their order, and applies the rules and the approval policy.
func (s *step) judge(e *Judge) (Output, error) {
	j := &judgement{Judge: e, producer: s.producer(e.Run)}
	policy := cmp.Or(s.town.Policy, &s.ApprovalPolicy)
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
		j.producer.StartBatch(s.tail.Next)
	}
	verdict := Check(e.Handoff, e.Prior, s.town.State)
	if !verdict.Accepted {
		return s.refuse(j, verdict.Outcome)
	}
	after, reason := s.Rules.Apply(s.town.State.Snapshot, &e.Handoff.Proposal)
	if reason != "" { // nobody is asked to approve it
		return s.conclude(j, verdict.Failed(reason, s.town.State), s.town.State)
	}
	if asks {
		clearance := s.town.Approvals.Clearance(*policy, e.Handoff, j.encoded, s.in.At.UTC())
		if clearance.Reason != "" {
			return s.unapproved(j, verdict.Unapproved(clearance.Reason, clearance.Detail), clearance.Enqueue)
		}
		e.Start.Approval = &Approval{
			SignalID: clearance.Approved.SignalID, ActorID: clearance.Approved.ActorID,
			Reason: clearance.Approved.Reason, At: clearance.At,
		}
	}
	binding := cmp.Or(s.town.Binding, s.Binding)
	if binding.Spec().BuiltIn || e.DryRun {
		return s.conclude(j, verdict.Executed(after), after)
	}
	return s.accept(j, &verdict.Outcome.Evaluation, after, binding)
}

// judgedRecord returns the record of an outcome, with the events of the whole run, and the answer.
func (s *step) judgedRecord(j *judgement, kind Kind, outcome handoff.Outcome) (*Answer, *Record, error) {
	result := handoff.NewResult(j.Handoff, outcome)
	encoded, err := result.MarshalWire()
	if err != nil {
		return nil, nil, err
	}
	if err := EmitRun(j.producer, j.Handoff, result, j.Start); err != nil {
		return nil, nil, err
	}
	return &Answer{RunID: j.Run.RunID, Result: result, JSON: encoded}, &Record{
		Kind: kind, Purpose: PurposeJudgement, TownID: s.in.TownID, Result: encoded, DecodedResult: result,
		Handoff: j.Sent, Run: j.producer.Run(), RetryOf: j.RetryOf,
	}, nil
}

// refuse returns the record of a handoff that changes no town and consumes no key.
func (s *step) refuse(j *judgement, outcome handoff.Outcome) (Output, error) {
	answer, rec, err := s.judgedRecord(j, KindRefused, outcome)
	if err != nil {
		return Output{}, err
	}
	answer.First = j.Prior
	return Output{
		Record: rec, Answer: answer,
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
	answer, rec, err := s.judgedRecord(j, KindAsked, outcome)
	if err != nil {
		return Output{}, err
	}
	rec.WorldPolicy = s.worldPolicy()
	after := s.town
	after.Approvals = after.Approvals.Add(j.Handoff, j.encoded, j.Run.Trace,
		s.in.At.UTC(), s.ApprovalTimeout)
	return Output{Record: rec, NextTown: after, Answer: answer}, nil
}

// conclude returns the record of an accepted handoff that was executed, or failed, by the rules.
func (s *step) conclude(j *judgement, outcome handoff.Outcome, state town.State) (Output, error) {
	answer, rec, err := s.judgedRecord(j, KindConcluded, outcome)
	if err != nil {
		return Output{}, err
	}
	addition := handoff.AdditionOf(j.Handoff)
	rec.Addition, rec.WorldPolicy, rec.Rules = &addition, s.worldPolicy(), s.amounts()
	after := s.town
	after.State = state
	after.Approvals = after.Approvals.MarkUsed(j.Handoff, j.encoded, answer.RunID)
	return Output{Record: rec, NextTown: after, Answer: answer}, nil
}

// accept returns the first record of an accepted handoff whose command a game has to apply.
func (s *step) accept(
	j *judgement, evaluation *handoff.Evaluation, expected town.State, binding apply.Binding,
) (Output, error) {
	err := EmitAccepted(j.producer, j.Handoff, evaluation, j.Start)
	if err != nil {
		return Output{}, err
	}
	run, at, after := j.producer.Run(), s.in.At.UTC(), s.town
	after.Approvals = after.Approvals.MarkUsed(j.Handoff, j.encoded, run.RunID)
	p := &apply.Pending{
		Binding: binding, Handoff: j.Sent, Expected: expected.Canonical, RetryOf: j.RetryOf,
		Run: run.Identity, Emitted: run.FirstSeq + int64(len(run.Events)) - 1,
		Accepted: at, Attempt: 1, NotBefore: at, Deadline: at.Add(s.Retry.Deadline),
	}
	p.EventIDs, err = runlog.DrawIDs(p.Run, s.newID, s.in.Drawn, NextEvents(1)...)
	after.Pending = p
	out := Output{Record: &Record{
		Kind: KindPending, Purpose: PurposeAcceptance, TownID: s.in.TownID, Run: run,
		WorldPolicy: s.worldPolicy(), Rules: s.amounts(),
	}, NextTown: after}
	if s.tail != nil {
		out.RunRecordAfter = s.runRecord(p.Run, nil, PurposeProgress)
		out.RunRecordAfter.Run.FirstSeq = p.Emitted + 1
	}
	return out, err
}

func (s *step) worldPolicy() *approval.Policy { return s.ApprovalPolicy.Inherited(s.town.Policy) }

// amounts returns the Rules for a record: nil for the default amounts.
func (s *step) amounts() *town.Rules {
	if *s.Rules == town.DefaultRules() {
		return nil
	}
	return s.Rules
}
