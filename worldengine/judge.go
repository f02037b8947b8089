package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
)

// Submit queues h for its town and returns; done is called once, from another goroutine, when the
// answer is committed, or with the error that kept it from being so. Handoffs of one town are
// judged in the order of their submission. An error of Submit itself (ErrOverloaded, ErrStopping,
// ErrInProgress) means that done is not called.
func (e *Engine) Submit(h *handoff.Handoff, done func(Answer, error)) error {
	return e.SubmitTraced(h, trace.Context{}, done)
}

// SubmitTraced is Submit for a handoff that came with a trace context, which the run has from then
// on.
func (e *Engine) SubmitTraced(
	h *handoff.Handoff, of trace.Context, done func(Answer, error),
) error {
	d, err := e.newDelivery(h, of)
	if err != nil {
		return err
	}
	return e.submit(d, done)
}

// submit queues a delivery, whose client is answered by done. If the command of its handoff is
// being applied it returns ErrInProgress, unless it is a retry, whose refusal is to be recorded.
func (e *Engine) submit(d *delivery, done func(Answer, error)) error {
	d.done = done
	townID := d.Handoff.Proposal.TownID
	if d.retries == nil {
		if err := e.games.InProgress(townID, d.Handoff.IdempotencyKey); err != nil {
			return err
		}
	}
	return e.queue.SubmitItem(townID, d,
		func(ctx context.Context, t queue.Turn) queue.Result { return e.take(ctx, d, t) })
}

// take gives a delivery its turn, and answers its client unless the turn ended otherwise.
func (e *Engine) take(ctx context.Context, d *delivery, t queue.Turn) queue.Result {
	if d.answered {
		return queue.Done
	}
	panicked := true
	defer func() {
		if panicked {
			e.waiting.Leave(&d.Run)
			d.done(Answer{}, queue.ErrPanicked)
		}
	}()
	end, answer, err := e.judge(ctx, d, t.Queued)
	switch {
	case err != nil:
	case end == handedOver:
		panicked = false
		e.waiting.Done(&d.Run)
		return queue.Done
	case end == parked && !t.Closing:
		panicked = false
		return queue.Parked
	case end == parked:
		err = ErrStopping
	}
	if err != nil {
		e.abandon(ctx, d, err)
	} else {
		e.waiting.Done(&d.Run)
	}
	panicked = false
	e.queue.Answering(d.Handoff.Proposal.TownID)
	d.done(answer, err)
	return queue.Done
}

// Execute is Submit for a caller that waits.
func (e *Engine) Execute(ctx context.Context, h *handoff.Handoff) (Answer, error) {
	return queue.Wait(ctx, func(done func(Answer, error)) error { return e.Submit(h, done) })
}

// judge decides about a delivery and commits the decision. It owns the handoff's town meanwhile.
// waited reports whether the delivery had to wait for another one, or for a change, of its town.
func (e *Engine) judge(
	ctx context.Context, d *delivery, waited bool,
) (end turn, answer Answer, err error) {
	if waited {
		d.Wait()
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err = e.log.Retry(ctx, func() (err error) {
		if end, answer, err = e.decide(ctx, d); errors.Is(err, commitlog.ErrLostRace) {
			e.towns.Forget(d.Handoff.Proposal.TownID)
		}
		return err
	})
	if err == nil && end == answered {
		e.results.count(answer.Result.Status)
	}
	return end, answer, err
}

// decide judges a delivery once against what this writer knows, and commits. It returns
// ErrLostRace when its knowledge is behind the log.
func (e *Engine) decide(ctx context.Context, d *delivery) (turn, Answer, error) {
	h := d.Handoff
	current, err := e.towns.Get(ctx, h.Proposal.TownID)
	if err != nil {
		return answered, Answer{}, err
	}
	if wait, err := e.mustWait(ctx, d, current); wait || err != nil {
		return parked, Answer{}, err
	}
	until := d.Queued.Add(indexTimeout)
	if least := time.Now().Add(minIndexWait); until.Before(least) {
		until = least
	}
	behind := current.LoadedSeq
	if d.retries != nil {
		behind = max(behind, d.retries.LogSeq) // the record of the receipt
	}
	prior, err := e.lookupKey(ctx, h.Proposal.TownID, h.IdempotencyKey, behind, until)
	if err != nil {
		return answered, Answer{}, err
	}
	if e.worldPause.Known().By != nil { // it came while the index was waited for
		if wait, err := e.mustWait(ctx, d, current); wait || err != nil {
			return parked, Answer{}, err
		}
	}
	if d.retries != nil {
		if err := e.mayRetry(ctx, d, prior); err != nil {
			return answered, Answer{}, err
		}
		prior = nil
	}
	in := e.steps.Input(h.Proposal.TownID, d.drawn, &machine.Handoff{
		Handoff: h, Prior: prior, Run: d.Identity, Next: d.Next(), Begin: d.Begin(),
		RetryOf: d.retryOf(),
	})
	out, err := e.steps.Step(ctx, current, in)
	d.drawn = in.Drawn
	switch {
	case err != nil:
		if out.On == machine.OfTown {
			e.towns.Forget(h.Proposal.TownID) // whatever it is now, the log knows
		}
		return answered, Answer{}, err
	case out.On == machine.OfTown:
		e.towns.Set(h.Proposal.TownID, out.After)
	}
	if n := len(out.After.Approvals); e.config.OnAsked != nil && out.Record.Kind == machine.KindAsked {
		e.config.OnAsked(h.Proposal.TownID, &out.After.Approvals[n-1])
	}
	if out.Answer != nil {
		return answered, *out.Answer, nil
	}
	e.waiting.Reopen(ctx, &d.Run, out.After.Pending.Emitted)
	return handedOver, Answer{}, e.games.Ensure(h.Proposal.TownID, out.After, d.done)
}

// mustWait reports whether a delivery has to wait: while a command is being applied to its town,
// which this writer then works on, and while the town or the world is paused. ErrInProgress says
// that the command is this handoff's.
func (e *Engine) mustWait(ctx context.Context, d *delivery, current commitlog.Entry) (bool, error) {
	if current.Pending != nil {
		if err := e.games.Ensure(d.Handoff.Proposal.TownID, current, nil); err != nil {
			return false, err
		}
	}
	err := e.games.InProgress(d.Handoff.Proposal.TownID, d.Handoff.IdempotencyKey)
	if err != nil {
		return false, e.inProgress(ctx, d, current, err)
	}
	by := e.worldPause.Of(current)
	if by != nil || current.Pending != nil {
		e.waiting.Reopen(ctx, &d.Run, 0)
	}
	if by != nil {
		if current.Paused != nil {
			e.towns.Forget(d.Handoff.Proposal.TownID) // another writer may resume it
		}
		return true, e.park(ctx, d, wait{by: by, world: current.Paused == nil})
	}
	if current.Pending != nil {
		return true, e.park(ctx, d, wait{behind: current.Pending.Run.RunID})
	}
	err = e.waiting.Close(ctx, &d.Run)
	if errors.Is(err, machine.ErrRunCancelled) {
		err = &CancelledError{RunID: d.Identity.RunID}
	}
	return false, err
}

// mayRetry refuses a delivery that tries a run again which the receipt of its key does not name any
// more.
func (e *Engine) mayRetry(ctx context.Context, d *delivery, prior *dedupe.Receipt) error {
	return e.refuseRetry(ctx, d, d.retries.Judge(prior))
}

// inProgress returns the error of a delivery whose command is being applied, in another run: why,
// if it is no retry.
func (e *Engine) inProgress(
	ctx context.Context, d *delivery, current commitlog.Entry, why error,
) error {
	switch {
	case d.retries == nil:
		return why
	case current.Pending == nil || current.Pending.Run.PlanID != d.Identity.PlanID,
		current.Pending.Run.RunID == d.retries.RunID:
		// it has ended elsewhere, which this writer is about to learn
		e.towns.Forget(d.Handoff.Proposal.TownID)
		return commitlog.ErrContended
	}
	return e.refuseRetry(ctx, d, runs.InHand(current.Pending.Run.RunID))
}

// refuseRetry records that a retry is refused, and returns the refusal; nil if there is none. It
// is found under the run that the retry was to have, unless that has events of its own.
func (e *Engine) refuseRetry(ctx context.Context, d *delivery, refusal *runs.Refusal) error {
	if refusal == nil {
		return nil
	}
	s := &Signal{
		Kind: machine.SignalRetry, TownID: d.Handoff.Proposal.TownID, RunID: d.Retry.RunID,
		HandoffID: d.Handoff.HandoffID, ActorID: d.Retry.ActorID, Reason: d.Retry.Reason,
	}
	if !d.MayBeRecorded() { // its operator may know the run, which is the signal's
		s.Run = d.Identity
		s.Run.PlanID, s.Run.PlanVersion = machine.SignalPlan, machine.SignalVersion
		s.Run.Trace = trace.Context{}
	}
	return e.refuse(ctx, s, refusal.Code, refusal.Message)
}
