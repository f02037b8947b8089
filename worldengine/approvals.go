package worldengine

import (
	"context"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/machine"
)

// Approvals returns the reader of the proposals that wait for a person's approval.
func (e *Engine) Approvals() *approvals.Reader {
	return &approvals.Reader{
		Log: e.log, Index: e.index, Rules: e.config.Rules, Default: e.config.policy,
		Now: e.config.Now, Logger: e.config.Logger,
	}
}

// Decide takes a decision about a handoff that waits for approval in a town: s has the kind,
// SignalApprove or SignalDeny, the town, the handoff, the person and the reason. The decision is a
// commit of the town, so one of two is first; the other gets a *SignalError. The returned entry has
// the decision and, if it is an approval, the handoff.
func (e *Engine) Decide(ctx context.Context, s Signal) (approval.Asked, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s = s.WithDefaults()
	out, err := e.signal(ctx, &s)
	if err != nil {
		return approval.Asked{}, err
	}
	return *out.Decided, nil
}

// Deliver executes a handoff that was approved, as if its agent had sent it again with the trace of
// the first time. If its key has the result of a run that may be tried again, a retry asked for
// the approval, and another one uses it. ctx bounds the wait for the answer, not the execution: the
// answer beside ctx's error, or ErrInProgress, has the run alone.
func (e *Engine) Deliver(ctx context.Context, approved *approval.Asked) (Answer, error) {
	h, err := handoff.Parse(approved.Handoff, schemas.Limits{Bytes: len(approved.Handoff) + 1})
	if err != nil {
		return Answer{}, err
	}
	prior, err := e.Receipt(ctx, h.Proposal.TownID, h.IdempotencyKey)
	if err != nil || !machine.MayBeRetried(prior) { // what errs here errs there too
		d, err := e.newDelivery(h, approved.Trace)
		if err != nil {
			return Answer{}, err
		}
		answer, err := e.await(ctx, d)
		if err != nil && ctx.Err() != nil {
			answer.RunID = d.run.RunID
		}
		return answer, err
	}
	retried, err := e.Retry(ctx, Signal{
		Kind: machine.SignalRetry, RunID: prior.RunID, HandoffID: h.HandoffID,
		ActorID: approved.Decision.ActorID, Reason: approved.Decision.Reason,
	}, operationTimeout)
	switch {
	case err != nil:
		return Answer{}, err
	case retried.Answer == nil:
		return Answer{RunID: retried.RunID}, ErrInProgress
	}
	return *retried.Answer, nil
}
