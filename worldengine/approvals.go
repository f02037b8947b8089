package worldengine

import (
	"cmp"
	"context"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/check"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// policyOf returns which types of proposals take an approval in a town.
func (e *Engine) policyOf(current commitlog.Entry) *approval.Policy {
	return cmp.Or(current.Policy, &e.config.policy)
}

// approve returns whether a handoff that passed all checks has the approval that its type takes:
// the zero judgement where the type takes none in its town.
func (e *Engine) approve(h *handoff.Handoff, current commitlog.Entry) (approval.Judgement, error) {
	policy := e.policyOf(current)
	if !policy.Requires(h.Proposal.Type) {
		return approval.Judgement{}, nil
	}
	encoded, err := h.MarshalWire()
	if err != nil {
		return approval.Judgement{}, err
	}
	return current.Approvals.Judge(*policy, h, encoded, e.config.Now()), nil
}

// commitUnapproved stores that a handoff which passed every check may not be executed. The first
// time that is one commit of the town, from which on it waits for a decision.
func (e *Engine) commitUnapproved(
	ctx context.Context, j *judgement, checked check.Result, gate approval.Judgement,
) (Answer, error) {
	j.result = handoff.NewResult(j.Handoff, checked.Unapproved(gate.Reason, gate.Detail))
	townID, after := j.Handoff.Proposal.TownID, j.before
	if gate.Reason == handoff.ReasonApprovalRequired {
		// Where it waits already the index has lost its entry, if at all, to a restore.
		if err := e.indexAsked(ctx, townID, gate.Ask); err != nil {
			return Answer{}, err
		}
	}
	if !gate.Ask {
		return e.commitRefused(ctx, j)
	}
	answer, err := j.answer()
	if err != nil {
		return Answer{}, err
	}
	after.Approvals = after.Approvals.Ask(
		j.Handoff, j.encoded, j.Identity.Trace, e.config.Now().UTC(), e.config.ApprovalTimeout)
	rec := commitlog.Record{
		Kind: commitlog.KindAsked, TownID: townID, Result: answer.JSON, Handoff: j.encoded,
		Run: j.Producer.Run(), WorldPolicy: e.config.policy.Where(j.before.Policy),
		RetryOf: j.retryOf(),
	}
	return answer, e.commitTown(ctx, &rec, j.before.Seq, after)
}

// commitTown commits a record that leaves the state of a town as it is.
func (e *Engine) commitTown(
	ctx context.Context, rec *commitlog.Record, guard uint64, after commitlog.Entry,
) error {
	msg, err := rec.Message(wire.LogSubject(e.config.World, wire.TownToken(rec.TownID)), &after)
	if err != nil {
		return err
	}
	_, err = e.log.Commit(ctx, msg, guard)
	e.towns.Forget(rec.TownID) // whatever it is now, the log knows: decisions come beside its turns
	if err == nil {
		failpoint.At(failpoint.Committed)
	}
	return err
}

// Approvals returns what reads the proposals that wait for a person's approval.
func (e *Engine) Approvals() *approvals.Reader {
	return &approvals.Reader{
		Log: e.log, Index: e.index, Rules: e.config.Rules, Default: e.config.policy,
		Now: e.config.Now, Logger: e.config.Logger,
	}
}

// Decide takes a person's decision about a handoff that waits for approval: see approvals.Decider.
func (e *Engine) Decide(ctx context.Context, s Signal) (approval.Asked, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	d := approvals.Decider{
		Log: e.log, Signals: e.recorder(), Commit: e.commitTown, Now: e.config.Now,
		Timeout: e.config.ApprovalTimeout,
	}
	return d.Decide(ctx, s)
}

// Deliver executes a handoff that was approved, as if its agent had sent it again with the trace of
// the first time. Where its key has the result of a run that may be tried again, a retry asked for
// the approval, and another one uses it. ctx bounds the wait for the answer, not the execution;
// ErrInProgress says that a retry has none yet.
func (e *Engine) Deliver(ctx context.Context, approved *approval.Asked) (Answer, error) {
	h, err := handoff.Parse(approved.Handoff, schemas.Limits{Bytes: len(approved.Handoff) + 1})
	if err != nil {
		return Answer{}, err
	}
	prior, err := e.Receipt(ctx, h.Proposal.TownID, h.IdempotencyKey)
	if err != nil || !commitlog.MayBeRetried(prior) { // what errs here errs there too
		return queue.Wait(ctx, func(done func(Answer, error)) error {
			return e.SubmitTraced(h, approved.Trace, done)
		})
	}
	retried, err := e.Retry(ctx, Signal{
		Kind: lifecycle.SignalRetry, RunID: prior.RunID, HandoffID: h.HandoffID,
		ActorID: approved.Decision.ActorID, Reason: approved.Decision.Reason,
	}, operationTimeout)
	switch {
	case err != nil:
		return Answer{}, err
	case retried.Answer == nil:
		return Answer{}, ErrInProgress
	}
	return *retried.Answer, nil
}

// approvalOf returns what the events of a run say about the decision with which it is executed.
func approvalOf(d *approval.Decision) *lifecycle.Approval {
	if d == nil {
		return nil
	}
	return &lifecycle.Approval{SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason}
}
