package engine

import (
	"context"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
)

// Redelivery is the delivery of an approved handoff, which began in the turn of its decision.
type Redelivery struct {
	signals  *Signals
	townID   string
	approved approval.Request
	delivery *delivery // nil if nothing was queued: err is why, or the handoff was accepted before
	reply    queue.Future[Answer]
	err      error
}

// redeliver delivers an approved handoff as if its agent had sent it again with the first trace. If the key's
// result is the handoff's own, of a run that may be retried, the approval is for a retry, and the handoff is
// retried. A handoff that was accepted for execution before is not executed again. Call redeliver in the
// decision's turn, so that an approval that is stored has its effect even if nobody waits for it any more.
func (s *Signals) redeliver(ctx context.Context, townID string, approved *approval.Request) *Redelivery {
	r := &Redelivery{signals: s, townID: townID, approved: *approved, reply: queue.NewFuture[Answer]()}
	if approved.Handoff == nil {
		return r
	}
	h, err := handoff.Parse(approved.Handoff, schemas.Limits{Bytes: len(approved.Handoff) + 1})
	if err != nil {
		r.err = err
		return r
	}
	prior, err := s.receipts.Get(ctx, townID, h.IdempotencyKey)
	retries := err == nil && apply.MayBeRetried(prior.ReasonCode) && prior.HandoffID == h.HandoffID
	if retries { // an error of Receipt recurs in the delivery
		r.delivery, _, r.err = s.newRetry(ctx, Signal{
			Kind: machine.SignalRetry, RunID: prior.RunID, HandoffID: h.HandoffID,
			ActorID: approved.Decision.ActorID, Reason: approved.Decision.Reason,
		})
	} else {
		r.delivery, r.err = s.handoffs.newDelivery(h, approved.Trace)
	}
	if r.err == nil {
		r.err = s.handoffs.submit(r.delivery, r.reply)
	}
	return r
}

// Wait returns the answer. ctx bounds the wait for it, not the execution. If the error is ctx's or
// ErrInProgress, the answer has at most a RunID.
func (r *Redelivery) Wait(ctx context.Context) (Answer, error) {
	switch d := r.delivery; {
	case r.err != nil:
		return Answer{}, r.err
	case d == nil:
		return r.signals.earlierAnswer(ctx, r.townID, &r.approved)
	case d.failedRun != nil:
		return d.awaitRetry(ctx, r.reply)
	}
	answer, err := r.reply.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		answer.RunID = r.delivery.waitingRun()
	}
	return answer, err
}

// earlierAnswer returns the answer to a handoff that was accepted for execution. While a game has the
// command, the error is ErrInProgress, since a retry's key still has the result of the retried run.
func (s *Signals) earlierAnswer(
	ctx context.Context, townID string, approved *approval.Request,
) (Answer, error) {
	current, err := s.log.Load(ctx, townID)
	if err == nil && current.Pending != nil && current.Pending.Run.RunID == approved.RunID {
		return Answer{}, waiting.StillApplying(approved.RunID, townID, current.Pending.Binding,
			s.dispatcher.Absences.StartOf(townID))
	}
	receipt, err := s.receipts.Get(ctx, townID, approved.IdempotencyKey)
	if err == nil && receipt.HandoffID != approved.HandoffID { // the run was cancelled
		err = ErrUnknownResult
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{RunID: receipt.RunID, JSON: receipt.Result}, nil
}
