package engine

import (
	"context"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
)

// Delivery is the delivery of an approved handoff, which began in the turn of its decision.
type Delivery struct {
	engine   *Engine
	townID   string
	approved approval.Request
	queued   *delivery // nil if nothing was queued: err is why, or the handoff was accepted before
	reply    queue.Reply[Answer]
	err      error
}

// deliver delivers an approved handoff as if its agent had sent it again with the first trace. If the key's
// result is the handoff's own, of a run that may be retried, the approval is for a retry, and the handoff is
// retried. A handoff that was accepted for execution before is not executed again. Call deliver in the
// decision's turn, so that an approval that is stored has its effect even if nobody waits for it any more.
func (e *Engine) deliver(ctx context.Context, townID string, approved *approval.Request) *Delivery {
	s := &Delivery{engine: e, townID: townID, approved: *approved, reply: queue.NewReply[Answer]()}
	if approved.Handoff == nil {
		return s
	}
	h, err := handoff.Parse(approved.Handoff, schemas.Limits{Bytes: len(approved.Handoff) + 1})
	if err != nil {
		s.err = err
		return s
	}
	prior, err := e.Receipt(ctx, townID, h.IdempotencyKey)
	retries := err == nil && apply.MayBeRetried(prior.ReasonCode) && prior.HandoffID == h.HandoffID
	if retries { // an error of Receipt recurs in the delivery
		s.queued, _, s.err = e.newRetry(ctx, Signal{
			Kind: machine.SignalRetry, RunID: prior.RunID, HandoffID: h.HandoffID,
			ActorID: approved.Decision.ActorID, Reason: approved.Decision.Reason,
		})
	} else {
		s.queued, s.err = e.newDelivery(h, approved.Trace)
	}
	if s.err == nil {
		s.err = e.submit(s.queued, s.reply)
	}
	return s
}

// Wait returns the answer. ctx bounds the wait for it, not the execution. If the error is ctx's or
// ErrInProgress, the answer has at most a RunID.
func (s *Delivery) Wait(ctx context.Context) (Answer, error) {
	switch d := s.queued; {
	case s.err != nil:
		return Answer{}, s.err
	case d == nil:
		return s.engine.delivered(ctx, s.townID, &s.approved)
	case d.retries != nil:
		return d.awaitRetry(ctx, s.reply)
	}
	answer, err := s.reply.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		answer.RunID = s.engine.waitsIn(s.queued)
	}
	return answer, err
}

// delivered returns the answer to a handoff that was accepted for execution. While a game has the
// command, the error is ErrInProgress, since a retry's key still has the result of the retried run.
func (e *Engine) delivered(
	ctx context.Context, townID string, approved *approval.Request,
) (Answer, error) {
	current, err := e.log.Load(ctx, townID)
	if err == nil && current.Pending != nil && current.Pending.Run.RunID == approved.RunID {
		return Answer{}, game.StillApplying(approved.RunID, townID, current.Pending.Binding,
			e.absences.StartOf(townID))
	}
	receipt, err := e.Receipt(ctx, townID, approved.IdempotencyKey)
	if err == nil && receipt.HandoffID != approved.HandoffID { // the run was cancelled
		err = ErrUnknownResult
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{RunID: receipt.RunID, JSON: receipt.Result}, nil
}
