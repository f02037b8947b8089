package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/handoff"
	"worldengine/trace"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
)

// Submit queues a handoff, which came with a trace context, for its town. client gets the answer
// when it is committed, or the error that kept it from being so. Handoffs of one town are judged in
// the order of their submission. After an error of Submit itself (ErrOverloaded, ErrStopping,
// ErrInProgress) client gets none.
func (e *Engine) Submit(h *handoff.Handoff, traced trace.Context, client Client) error {
	d, err := e.newDelivery(h, traced)
	if err != nil {
		return err
	}
	return e.submit(d, client)
}

// Execute is Submit for a caller that waits.
func (e *Engine) Execute(ctx context.Context, h *handoff.Handoff) (Answer, error) {
	d, err := e.newDelivery(h, trace.Context{})
	if err != nil {
		return Answer{}, err
	}
	return e.await(ctx, d)
}

// await submits a delivery and waits for its answer.
func (e *Engine) await(ctx context.Context, d *delivery) (Answer, error) {
	reply := queue.NewReply[Answer]()
	if err := e.submit(d, reply); err != nil {
		return Answer{}, err
	}
	return reply.Wait(ctx)
}

// submit queues a delivery. If the command of its handoff is being applied it returns ErrInProgress,
// unless it is a retry, whose refusal is to be recorded.
func (e *Engine) submit(d *delivery, client Client) error {
	d.client = client
	townID := d.Handoff.Proposal.TownID
	if d.retries == nil {
		if err := e.games.InProgress(townID, d.Handoff.IdempotencyKey); err != nil {
			return err
		}
	}
	return e.queue.SubmitItem(townID, d,
		func(ctx context.Context, t queue.Turn) queue.Result { return e.process(ctx, d, t) })
}

// process judges d in its turn and answers its client, unless d was parked or handed over. It owns
// the town meanwhile.
func (e *Engine) process(ctx context.Context, d *delivery, t queue.Turn) queue.Result {
	if d.answered {
		return queue.Done
	}
	panicked := true
	defer func() {
		if panicked {
			e.waiting.Leave(&d.Run)
			d.client.Answer(Answer{}, queue.ErrPanicked)
		}
	}()
	if t.Queued {
		d.Wait()
	}
	end, answer, err := e.judge(ctx, d)
	if err == nil && end == parked && t.Closing {
		err = ErrStopping
	}
	switch {
	case err != nil:
		end = answered
		e.abandon(ctx, d, err)
	case end != parked:
		e.waiting.Done(&d.Run)
	}
	panicked = false
	switch end {
	case parked:
		return queue.Parked
	case answered:
		e.queue.Answering(d.Handoff.Proposal.TownID)
		d.client.Answer(answer, err)
	}
	return queue.Done
}

// judge decides about a delivery, again if it loses a race, and commits the decision.
func (e *Engine) judge(ctx context.Context, d *delivery) (end turn, answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err = e.log.Retry(ctx, func() (err error) {
		if end, answer, err = e.decide(ctx, d); errors.Is(err, commitlog.ErrLostRace) {
			e.towns.Forget(d.Handoff.Proposal.TownID)
		}
		return err
	})
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
	if d.retries != nil { // the receipt of its key may not name the run any more
		if err := e.refuseRetry(ctx, d, d.retries.Judge(prior)); err != nil {
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
	if n := len(out.After.Approvals); e.config.Notifier != nil && out.Record.Kind == machine.KindAsked {
		e.config.Notifier.Asked(h.Proposal.TownID, &out.After.Approvals[n-1])
	}
	if out.Answer != nil {
		return answered, *out.Answer, nil
	}
	e.waiting.Reopen(ctx, &d.Run, out.After.Pending.Emitted)
	return handedOver, Answer{}, e.games.Ensure(h.Proposal.TownID, out.After, d.client)
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

// refuseRetry records that a retry is refused, and returns the refusal; nil if there is none. It is
// recorded under the retry's run, unless that has events of its own.
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
