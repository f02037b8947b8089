package worldengine

import (
	"context"
	"errors"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/failpoint"
)

// Answer is what a handoff gets.
type Answer struct {
	// RunID is the run that judged this delivery of the handoff.
	RunID string
	// Result is the decision and JSON its bytes on the wire.
	Result *handoff.Result
	JSON   []byte
}

// Submit queues h for its town and returns; done is called once, from another goroutine, when the
// answer is committed, or with the error that kept it from being so. Handoffs of one town are
// judged in the order of their submission. An error of Submit itself (ErrOverloaded, ErrStopping,
// ErrInProgress) means that done is not called.
func (e *Engine) Submit(h *handoff.Handoff, done func(Answer, error)) error {
	townID := h.Proposal.TownID
	if e.applyings.has(h.IdempotencyKey) {
		return ErrInProgress
	}
	d := &delivery{handoff: h, done: done}
	return e.queues.submitDelivery(townID, d, func(ctx context.Context, t turn) bool { return e.take(ctx, d, t) })
}

// delivery is one delivery of a handoff on its way to an answer.
type delivery struct {
	handoff *handoff.Handoff
	done    func(Answer, error)
	// producer emits the events of its run; nil before its first turn.
	producer *runevents.Producer
	start    beginning
	// closed says that its run was paused and nobody else goes on with it; answered that its run was
	// cancelled and its client knows.
	closed, answered bool
}

// take gives a delivery its turn. It says false when the town cannot go on yet.
func (e *Engine) take(ctx context.Context, d *delivery, t turn) (finished bool) {
	if d.answered {
		return true
	}
	answer, err := Answer{}, error(errPanicked)
	defer func() {
		if finished = !errors.Is(err, errRest); finished && !errors.Is(err, errApplying) {
			d.done(answer, err)
		}
	}()
	if err = e.begin(d); err != nil {
		return true
	}
	if t.queued && d.start == atOnce {
		d.start = queued
	}
	answer, err = e.judge(ctx, d)
	if errors.Is(err, errRest) && t.closing {
		err = ErrStopping
	}
	if err != nil && !errors.Is(err, errRest) && !errors.Is(err, errApplying) && !errors.Is(err, ErrRunCancelled) {
		e.abandon(ctx, d, "The handoff was not judged: "+err.Error())
	}
	return true
}

// begin gives a delivery its run, once.
func (e *Engine) begin(d *delivery) error {
	if d.producer != nil {
		return nil
	}
	run, err := e.newRun(d.handoff.ProposalID, d.handoff.Proposal.SchemaVersion)
	if err != nil {
		return err
	}
	d.producer = e.newProducer(run)
	return nil
}

// newRun returns the identity of a new run.
func (e *Engine) newRun(planID, planVersion string) (runevents.Identity, error) {
	runID, err := e.config.newRunID()
	return runevents.Identity{
		RunID: runID, TenantID: e.config.TenantID, ProjectID: e.config.ProjectID,
		EnvironmentID: e.config.EnvironmentID, PlanID: planID, PlanVersion: planVersion,
	}, err
}

func (e *Engine) newProducer(run runevents.Identity) *runevents.Producer {
	return runevents.NewProducer(run, runevents.Source{Now: e.config.Now, NewID: e.config.NewID})
}

// errPanicked is what done gets when a defect of the engine kept it from an answer.
var errPanicked = errors.New("worldengine: internal error; it is in the server's log")

// Execute is Submit for a caller that waits.
func (e *Engine) Execute(ctx context.Context, h *handoff.Handoff) (Answer, error) {
	return wait(ctx, func(done func(Answer, error)) error { return e.Submit(h, done) })
}

// wait submits work and waits for it. When ctx ends first the work goes on unobserved.
func wait[T any](ctx context.Context, submit func(done func(T, error)) error) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	outcomes := make(chan outcome, 1)
	if err := submit(func(v T, err error) { outcomes <- outcome{v, err} }); err != nil {
		return *new(T), err
	}
	select {
	case o := <-outcomes:
		return o.value, o.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

// judge decides about a delivery and commits the decision. It owns the handoff's town and key
// meanwhile. errRest says that the town cannot go on yet, errApplying that the command is being
// applied, and the answer comes from there.
func (e *Engine) judge(ctx context.Context, d *delivery) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	defer e.keys.hold(d.handoff.IdempotencyKey)()
	for race := range maxRaces {
		e.yield(ctx, race)
		answer, err := e.decide(ctx, d)
		if err == nil {
			e.results.count(answer.Result.Status)
		}
		var taken *keyTakenError
		switch {
		case errors.As(err, &taken):
			if err := e.waitTaken(ctx, taken.seq); err != nil {
				return Answer{}, err
			}
		case errors.Is(err, errLostRace):
			e.towns.forget(d.handoff.Proposal.TownID)
		default:
			return answer, err
		}
		d.producer.Restart()
	}
	return Answer{}, ErrContended
}

// waitTaken waits for the receipt of a handoff that was accepted at log sequence seq. One that is being
// applied has none yet.
func (e *Engine) waitTaken(ctx context.Context, seq uint64) error {
	msg, err := e.log.message(ctx, seq)
	if err != nil {
		return err
	}
	if recordKind(msg.Header.Get(kindHeader)) == kindPending {
		return ErrInProgress
	}
	return e.waitReceipts(ctx, seq)
}

// decide judges a delivery once against what this instance knows, and commits. It returns errLostRace
// when what it knows is behind the log.
func (e *Engine) decide(ctx context.Context, d *delivery) (Answer, error) {
	h := d.handoff
	current, err := e.towns.get(ctx, h.Proposal.TownID)
	if err != nil {
		return Answer{}, err
	}
	if err := e.mayGoOn(ctx, d, current); err != nil {
		return Answer{}, err
	}
	if err := e.waitReceipts(ctx, current.loadedSeq); err != nil {
		return Answer{}, err
	}
	prior, err := e.lookup(ctx, h.IdempotencyKey)
	if err != nil {
		return Answer{}, err
	}
	checked := Check(h, prior, current.state)
	failpoint.At(failpoint.Judged)
	j := judgement{delivery: d, before: current}
	if !checked.Accepted {
		j.result = handoff.NewResult(h, checked.Outcome)
		return e.commitRefused(ctx, &j)
	}
	after, reason := e.config.Rules.Apply(current.state.Snapshot, &h.Proposal)
	via := orDefault(current.apply, e.config.Apply)
	switch {
	case reason != "":
		j.after, j.result = current.state, handoff.NewResult(h, checked.Failed(reason, current.state))
	case via != ApplyLocal:
		return Answer{}, e.commitPending(ctx, &j, &checked.Outcome.Evaluation, after, via)
	default:
		j.after, j.result = after, handoff.NewResult(h, checked.Executed(after))
	}
	return e.commitAccepted(ctx, &j)
}

// mayGoOn says nil when the town may be gone on with. While a command is applied to it, it may not, and
// whoever finds one that nobody in this instance sees to sees to that; nor while it is paused.
func (e *Engine) mayGoOn(ctx context.Context, d *delivery, current entry) error {
	if current.pending != nil {
		if err := e.see(d.handoff.Proposal.TownID, current, nil); err != nil {
			return err
		}
	}
	if e.applyings.has(d.handoff.IdempotencyKey) {
		return ErrInProgress
	}
	if by := e.pauseOf(current); by != nil {
		if current.paused != nil {
			e.towns.forget(d.handoff.Proposal.TownID) // another instance may resume it
		}
		return e.hold(ctx, d, by)
	}
	if current.pending != nil {
		return errRest
	}
	return e.resume(ctx, d)
}
