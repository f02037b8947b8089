package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/commitlog"
)

// delivery is a handoff on its way to an answer, in a run of its own: a task of its town's queue.
// Only its turn changes a delivery.
type delivery struct {
	handoffs    *Handoffs
	handoff     *handoff.Handoff
	sent        []byte // the bytes that the client sent; nil if none
	answerer    Answerer
	run         runevents.Identity
	submittedAt time.Time // when it was submitted
	// failedRun is the run that the delivery retries, and retryRequest the operator's request; both
	// are nil if the delivery is no retry.
	failedRun    *machine.FailedRun
	retryRequest *machine.RetryRequest
	// drawn has the event ids of a step whose record was not stored; the next step uses them.
	drawn []runlog.DrawnID

	// waited reports whether the delivery had to wait for its town. reason is why it still waits.
	waited bool
	reason waiting.Reason
	// recorded reports whether the log may have events of the run on the run's own subject. tail is
	// the end of the run there, as far as this writer knows.
	recorded atomic.Bool
	tail     machine.RunTail
	// cancelledRun is the run that was cancelled while the delivery waited in it: its own, or the run
	// of an earlier delivery of the same handoff; "" if none was.
	cancelledRun string
}

func (d *delivery) townID() string { return d.handoff.Proposal.TownID }

// checkKey returns the error of a delivery if a command with its key is being applied; else nil.
func (d *delivery) checkKey() error {
	return d.handoffs.dispatcher.CheckKey(d.townID(), d.handoff.IdempotencyKey, d.handoff.HandoffID)
}

// RunTurn judges the delivery in its turn and answers its client. If the delivery waits, or a game gets
// its command, the client is answered later. No other task of the town runs at the same time.
func (d *delivery) RunTurn(ctx context.Context, t queue.Turn) (next time.Time) {
	d.waited = d.waited || t.HadToWait || t.Behind != nil
	answer, next, err := d.judgeInTurn(ctx, t.Behind)
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
func (d *delivery) End(ctx context.Context, err error) {
	d.cancelWaiting(ctx, err)
	d.answer(Answer{}, err)
}

func (d *delivery) answer(answer Answer, err error) {
	d.handoffs.queue.MarkReplying(d.townID())
	d.answerer.Answer(answer, err)
}

// judgeInTurn judges the delivery, again whenever its commit loses a race. If the delivery waits, next is the time
// of its next turn. answer is nil then, and if a game has its command.
func (d *delivery) judgeInTurn(ctx context.Context, behind queue.Task) (answer *Answer, next time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	if d.cancelledRun != "" {
		return nil, next, waiting.Cancelled(d.cancelledRun, false)
	}
	if behind != nil {
		next, err = d.waitBehind(ctx, behind)
		return nil, next, err
	}
	err = d.handoffs.log.RetryLostRaces(ctx, func() (err error) {
		answer, next, err = d.judgeOnce(ctx)
		return err
	})
	return answer, next, err
}

// judgeOnce judges the delivery once against the town that this writer knows, and commits. It returns
// ErrLostRace when that town is behind the log. If a command is being applied to the town, this writer works on it
// from then on.
func (d *delivery) judgeOnce(ctx context.Context) (answer *Answer, next time.Time, err error) {
	current, prior, err := d.load(ctx)
	if err == nil {
		err = d.handoffs.dispatcher.Reconcile(ctx, d.townID(), current)
	}
	if err == nil {
		err = d.refuseInProgress(ctx, current)
	}
	if err == nil {
		err = d.refreshPauses(ctx, current)
	}
	if err != nil {
		return nil, next, err
	}
	if reason := waiting.ReasonFor(current, d.handoffs.worldPause.Known().By); reason.Kind != waiting.Nothing {
		next, err = d.postpone(ctx, reason)
		return nil, next, err
	}
	if d.failedRun != nil { // the key's receipt may name another run by now
		if err := d.refuseRetry(ctx, d.failedRun.CheckReceipt(prior)); err != nil {
			return nil, next, err
		}
		prior = nil
	}
	return d.decide(ctx, current, prior)
}

// load returns the town as this writer knows it, and the receipt of the handoff's key there.
func (d *delivery) load(ctx context.Context) (current machine.Town, prior *dedupe.Receipt, err error) {
	if current, err = d.handoffs.townCache.Get(ctx, d.townID()); err != nil {
		return current, nil, err
	}
	minIndexed := current.LoadedSeq
	if d.failedRun != nil {
		minIndexed = max(minIndexed, d.failedRun.RetryOf.LogSeq) // the record of the receipt
	}
	prior, err = d.handoffs.receipts.lookup(ctx, d.townID(), d.handoff.IdempotencyKey, &current, minIndexed,
		max(indexTimeout-time.Since(d.submittedAt), minIndexTimeout))
	return current, prior, err
}

// refuseInProgress refuses the delivery if a command with its key is being applied in another run. The refusal of a
// retry is recorded. If that run has ended in the log, the town is loaded again, and the error is an ErrContended.
func (d *delivery) refuseInProgress(ctx context.Context, current machine.Town) error {
	err := d.checkKey()
	switch {
	case err == nil, d.failedRun == nil:
		return err
	case current.Pending == nil || current.Pending.Run.PlanID != d.run.PlanID,
		current.Pending.Run.RunID == d.failedRun.RunID:
		// another writer ended the other run, and this writer is about to learn that
		d.handoffs.townCache.Forget(d.townID())
		return commitlog.ErrContended
	}
	return d.refuseRetry(ctx, machine.RefuseSecondRetry(current.Pending.Run.RunID))
}

// refreshPauses has the pauses read again that another writer may have changed: the pause of the world at once, if this
// server is not the writer any more, and the pause of the town in the next turn.
func (d *delivery) refreshPauses(ctx context.Context, current machine.Town) error {
	if !d.handoffs.stepper.HasLease() {
		if err := d.handoffs.worldPause.Reread(ctx); err != nil {
			return err
		}
	}
	if current.Paused != nil {
		d.handoffs.townCache.Forget(d.townID())
	}
	return nil
}

// decide has the machine judge the handoff, whose key has the receipt prior in its town, and commits the decision.
// If a game has to apply the command, the dispatcher gets it, and answer is nil.
func (d *delivery) decide(
	ctx context.Context, current machine.Town, prior *dedupe.Receipt,
) (answer *Answer, next time.Time, err error) {
	hs := d.handoffs
	var retryOf *apply.RetryOf
	if d.failedRun != nil {
		retryOf = &d.failedRun.RetryOf
	}
	in := hs.stepper.Input(d.townID(), d.drawn, &machine.Judge{
		Handoff: d.handoff, Sent: d.sent, Prior: prior, Run: d.run, Recorded: d.recorded.Load(),
		Start: d.runStart(), RetryOf: retryOf,
	})
	out, err := hs.stepper.Step(ctx, current, in)
	if d.drawn = in.Drawn; in.Tail != nil {
		d.tail = *in.Tail
	}
	if errors.Is(err, machine.ErrRunCancelled) { // before, or by the next writer if this one was suspended
		err = waiting.Cancelled(d.run.RunID, false)
	}
	if err != nil {
		return nil, next, err
	}
	if n := len(out.NextTown.Approvals); hs.notifier != nil && out.Record.Kind == machine.KindAsked {
		hs.notifier.ApprovalRequested(d.townID(), &out.NextTown.Approvals[n-1])
	}
	if out.Answer == nil {
		err = hs.dispatcher.Execute(ctx, d.townID(), out.NextTown, d.answerer)
	}
	return out.Answer, next, err
}

// refuseRetry records that a retry is refused, and returns the refusal; nil if there is none. The
// refusal is recorded in the retry's run, unless that run has events already.
func (d *delivery) refuseRetry(ctx context.Context, refusal *approval.SignalRefusal) error {
	if refusal == nil {
		return nil
	}
	s, err := d.handoffs.signalRecorder.newSignal(Signal{
		Kind: machine.SignalRetry, TownID: d.townID(), RunID: d.retryRequest.RunID,
		HandoffID: d.handoff.HandoffID, ActorID: d.retryRequest.ActorID, Reason: d.retryRequest.Reason,
	})
	if err != nil {
		return err
	}
	if !d.recorded.Load() { // the operator may know the run of d, so the signal takes that run
		s.Run.RunID = d.run.RunID
	}
	return d.handoffs.signalRecorder.refuse(ctx, s, refusal)
}
