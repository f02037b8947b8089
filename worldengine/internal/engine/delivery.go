package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/commitlog"
)

// Answer is the answer to a handoff.
type Answer = machine.Answer

// Answerer gets, once, the answer to a handoff or the error that kept the handoff from being judged.
type Answerer = game.Answerer

// delivery is a handoff on its way to an answer, in a run of its own: a task of its town's queue.
// Only its turn changes a delivery.
type delivery struct {
	engine      *Engine
	handoff     *handoff.Handoff
	sent        []byte // the bytes that the client sent; nil if none
	client      Answerer
	run         runevents.Identity
	submittedAt time.Time // when it was submitted
	// failedRun is the run that the delivery retries, and retryRequest the operator's request; both
	// are nil if the delivery is no retry.
	failedRun    *machine.FailedRun
	retryRequest *machine.RetryRequest
	// drawn has the event ids of a step whose record was not stored; the next step uses them.
	drawn []runlog.DrawnID

	// waited reports whether the delivery had to wait for its town. why is why it still waits.
	waited bool
	why    waiting.Reason
	// recorded reports whether the log may have events of the run on the run's own subject. tail is
	// the end of the run there, as far as this writer knows.
	recorded atomic.Bool
	tail     machine.RunTail
	// cancelledRun is the run that was cancelled while the delivery waited in it: its own, or the run
	// of an earlier delivery of the same handoff; "" if none was.
	cancelledRun string
}

func (e *Engine) newDelivery(h *handoff.Handoff, traced trace.Context) (*delivery, error) {
	run, err := e.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	run.Trace = traced
	return &delivery{engine: e, handoff: h, run: run, submittedAt: time.Now()}, err
}

// Submit queues a handoff for its town. sent are the bytes from which it was parsed, or nil, and
// traced is the trace context that came with it. client gets the answer once it is committed, or
// the error that prevented the commit. Handoffs of one town are judged in their submission's order.
// If Submit itself returns an error (ErrOverloaded, ErrStopping, ErrInProgress), client gets
// nothing.
func (e *Engine) Submit(
	h *handoff.Handoff, sent []byte, traced trace.Context, client Answerer,
) error {
	d, err := e.newDelivery(h, traced)
	if err != nil {
		return err
	}
	d.sent = sent
	return e.submit(d, client)
}

// submit queues a delivery. If the command of its handoff is being applied, submit returns
// ErrInProgress. It queues a retry even then, so that the refusal is recorded.
func (e *Engine) submit(d *delivery, client Answerer) error {
	d.client = client
	if d.failedRun == nil {
		err := e.dispatcher.CheckKey(d.handoff.Proposal.TownID, d.handoff.IdempotencyKey, d.handoff.HandoffID)
		if err != nil {
			return err
		}
	}
	return e.queue.SubmitTask(d.handoff.Proposal.TownID, d)
}

// Run judges the delivery in its turn and answers its client. If the delivery waits, or a game gets
// its command, the client is answered later. No other task of the town runs at the same time.
func (d *delivery) Run(ctx context.Context, t queue.Turn) (next time.Time) {
	d.waited = d.waited || t.HadToWait || t.Behind != nil
	answer, next, err := d.engine.judgeInTurn(ctx, d, t.Behind)
	switch {
	case err != nil:
		d.End(ctx, err)
		return time.Time{}
	case answer != nil:
		d.answer(*answer, nil)
	}
	return next
}

// End answers the client that its handoff is not judged, and ends a recorded run.
func (d *delivery) End(ctx context.Context, why error) {
	d.engine.cancelWaiting(ctx, d, why)
	d.answer(Answer{}, why)
}

func (d *delivery) answer(answer Answer, err error) {
	d.engine.queue.MarkReplying(d.handoff.Proposal.TownID)
	d.client.Answer(answer, err)
}

// judgeInTurn judges a delivery, again whenever its commit loses a race. If the delivery waits, next is the time
// of its next turn. answer is nil then, and if a game has its command. Behind a waiting handoff, the delivery
// waits for that handoff's reason. Behind a waiting change, it waits until the town is woken, and its run is
// not recorded.
func (e *Engine) judgeInTurn(
	ctx context.Context, d *delivery, behind queue.Task,
) (answer *Answer, next time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	if d.cancelledRun != "" {
		return nil, next, waiting.Cancelled(d.cancelledRun, false)
	}
	if first, ok := behind.(*delivery); ok && first.why.Kind != waiting.Nothing {
		next, err = e.postpone(ctx, d, first.why)
		return nil, next, err
	}
	if behind != nil {
		return nil, queue.UntilWoken, nil
	}
	err = e.log.RetryLostRaces(ctx, func() (err error) {
		answer, next, err = e.judgeOnce(ctx, d)
		return err
	})
	return answer, next, err
}

// judgeOnce judges a delivery once against what this writer knows, and commits. It returns
// ErrLostRace when its knowledge is behind the log.
func (e *Engine) judgeOnce(
	ctx context.Context, d *delivery,
) (answer *Answer, next time.Time, err error) {
	h, townID := d.handoff, d.handoff.Proposal.TownID
	current, err := e.towns.Get(ctx, townID)
	if err != nil {
		return nil, next, err
	}
	minIndexed := current.LoadedSeq
	var retryOf *apply.RetryOf
	if d.failedRun != nil {
		retryOf = &d.failedRun.RetryOf
		minIndexed = max(minIndexed, retryOf.LogSeq) // the record of the receipt
	}
	prior, err := e.receipts.lookup(ctx, townID, h.IdempotencyKey, &current, minIndexed,
		max(indexTimeout-time.Since(d.submittedAt), minIndexTimeout))
	if err != nil {
		return nil, next, err
	}
	why, err := e.reasonToWait(ctx, d, current)
	if err != nil {
		return nil, next, err
	}
	if why.Kind != waiting.Nothing {
		next, err = e.postpone(ctx, d, why)
		return nil, next, err
	}
	if d.failedRun != nil { // the key's receipt may name another run by now
		if err := e.refuseRetry(ctx, d, d.failedRun.CheckReceipt(prior)); err != nil {
			return nil, next, err
		}
		prior = nil
	}
	in := e.stepper.Input(townID, d.drawn, &machine.Judge{
		Handoff: h, Sent: d.sent, Prior: prior, Run: d.run, Recorded: d.recorded.Load(),
		Start: d.runStart(), RetryOf: retryOf,
	})
	out, err := e.stepper.Step(ctx, current, in)
	if d.drawn = in.Drawn; in.Tail != nil {
		d.tail = *in.Tail
	}
	if errors.Is(err, machine.ErrRunCancelled) { // before, or by the next writer if this one was suspended
		err = waiting.Cancelled(d.run.RunID, false)
	}
	if err != nil {
		return nil, next, err
	}
	if n := len(out.NextTown.Approvals); e.config.Notifier != nil && out.Record.Kind == machine.KindAsked {
		e.config.Notifier.ApprovalRequested(townID, &out.NextTown.Approvals[n-1])
	}
	if out.Answer == nil {
		err = e.dispatcher.Execute(ctx, townID, out.NextTown, d.client)
	}
	return out.Answer, next, err
}

// reasonToWait returns why a delivery has to wait for its town; the zero Reason if it may be judged. If a
// command is being applied to the town, this writer works on it from now on. If the command is this
// handoff's, the error is ErrInProgress.
func (e *Engine) reasonToWait(
	ctx context.Context, d *delivery, current machine.Town,
) (why waiting.Reason, err error) {
	townID := d.handoff.Proposal.TownID
	if err := e.dispatcher.Reconcile(ctx, townID, current); err != nil {
		return why, err
	}
	if err := e.dispatcher.CheckKey(townID, d.handoff.IdempotencyKey, d.handoff.HandoffID); err != nil {
		return why, e.applyingError(ctx, d, current, err)
	}
	if !e.stepper.IsWriter() { // the next writer may have paused the world meanwhile
		if err := e.worldPause.Reread(ctx); err != nil {
			return why, err
		}
	}
	if current.Paused != nil {
		e.towns.Forget(townID) // another writer may resume it
	}
	return e.worldPause.ReasonFor(current), nil
}

// applyingError returns the error of a delivery whose command is being applied in another run. The
// error is why; for a retry, it is the retry's refusal.
func (e *Engine) applyingError(
	ctx context.Context, d *delivery, current machine.Town, why error,
) error {
	switch {
	case d.failedRun == nil:
		return why
	case current.Pending == nil || current.Pending.Run.PlanID != d.run.PlanID,
		current.Pending.Run.RunID == d.failedRun.RunID:
		// another writer ended the other run, and this writer is about to learn that
		e.towns.Forget(d.handoff.Proposal.TownID)
		return commitlog.ErrContended
	}
	return e.refuseRetry(ctx, d, machine.RefuseSecondRetry(current.Pending.Run.RunID))
}

// refuseRetry records that a retry is refused, and returns the refusal; nil if there is none. The
// refusal is recorded in the retry's run, unless that run has events already.
func (e *Engine) refuseRetry(ctx context.Context, d *delivery, refusal *approval.Refusal) error {
	if refusal == nil {
		return nil
	}
	s, err := e.newSignal(Signal{
		Kind: machine.SignalRetry, TownID: d.handoff.Proposal.TownID, RunID: d.retryRequest.RunID,
		HandoffID: d.handoff.HandoffID, ActorID: d.retryRequest.ActorID, Reason: d.retryRequest.Reason,
	})
	if err != nil {
		return err
	}
	if !d.recorded.Load() { // the operator may know the run of d, so the signal takes that run
		s.Run.RunID = d.run.RunID
	}
	return e.refuseSignal(ctx, s, refusal)
}
