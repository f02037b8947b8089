package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/failpoint"
)

// settle commits what follows from a verdict, in the town's turn, and concludes the application if that is
// its end. It says whether it is over; otherwise a holds the next attempt.
func (e *Engine) settle(ctx context.Context, a *applying, v verdict) (over bool) {
	for wait := restPause; ; wait = min(2*wait, maxSettlePause) {
		err := error(errPanicked)
		turn := make(chan struct{})
		submitErr := e.queues.submitFirst(a.town, func(ctx context.Context) {
			defer close(turn)
			defer func() {
				if err != nil { // a panic too
					e.towns.forget(a.town)
				}
			}()
			var answer Answer
			if over, answer, err = e.settleNow(ctx, a, v); err == nil && over {
				e.conclude(a, v, answer)
			}
		})
		if submitErr != nil {
			return true
		}
		if <-turn; err == nil {
			return over
		}
		e.config.Logger.Warn("what became of a command cannot be committed; will try again",
			"town", a.town, "run", a.runID, "error", err)
		if sleep(ctx, wait+e.config.draw(wait/4)); ctx.Err() != nil {
			return true
		}
	}
}

// maxSettlePause bounds the pause before a commit that failed is tried again.
const maxSettlePause = 5 * time.Second

// settleNow is settle within the town's turn. After an error it may be tried again.
func (e *Engine) settleNow(ctx context.Context, a *applying, v verdict) (bool, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	for race := range maxRaces {
		e.yield(ctx, race)
		current, err := e.towns.get(ctx, a.town)
		if err != nil {
			return false, Answer{}, err
		}
		if p := current.pending; p == nil || p.Run.RunID != a.runID {
			answer, err := e.settledElsewhere(ctx, a, current.seq)
			return true, answer, err
		}
		a.pending = current.pending
		if v.attempt != a.pending.Attempt && !v.applied {
			return false, Answer{}, nil // another instance has begun the next attempt
		}
		c := a.conclude(v, &e.config.Plugin)
		if c.again {
			err = e.commitAttempt(ctx, a, current, c.failed, v.reached)
		} else {
			var answer Answer
			if answer, err = e.commitConclusion(ctx, a, current, &c); err == nil {
				return true, answer, nil
			}
		}
		switch {
		case errors.Is(err, ErrRecordTooLarge) && c.failed == nil && v.snapshot != nil:
			v.applied, v.failed = false, &applyFailed{
				Reason: ReasonPluginStateInvalid, Message: "The reported state is too large to be stored.",
			}
			continue
		case err == nil:
			return false, Answer{}, nil
		case !errors.Is(err, errLostRace):
			return false, Answer{}, err
		}
		e.towns.forget(a.town)
	}
	return false, Answer{}, ErrContended
}

// settledElsewhere returns the answer of an application that another instance has concluded, at a
// log sequence up to seq.
func (e *Engine) settledElsewhere(ctx context.Context, a *applying, seq uint64) (Answer, error) {
	if err := e.waitReceipts(ctx, seq); err != nil {
		return Answer{}, err
	}
	receipt, err := e.lookup(ctx, a.handoff.IdempotencyKey)
	if err != nil {
		return Answer{}, err
	}
	if receipt == nil {
		return Answer{}, fmt.Errorf("worldengine: run %s was concluded, but there is no receipt of it", a.runID)
	}
	result, err := handoff.ParseResult(receipt.Result, schemas.Limits{Bytes: len(receipt.Result) + 1})
	if err != nil {
		return Answer{}, fmt.Errorf("worldengine: the receipt of run %s: %w", receipt.RunID, err)
	}
	return Answer{RunID: receipt.RunID, Result: result, JSON: receipt.Result}, nil
}

// commitAttempt stores that there is to be another logical attempt.
func (e *Engine) commitAttempt(
	ctx context.Context, a *applying, current entry, failed *applyFailed, reached bool,
) error {
	next := current
	next.pending = a.pending.next(*failed, reached, e.config.Now(), &e.config.Plugin)
	rec := record{Kind: kindPending, TownID: a.town}
	msg, err := rec.message(logSubject(e.config.World, TownToken(a.town)), &next)
	if err != nil {
		return err
	}
	if next.seq, err = e.log.commit(ctx, msg, current.seq); err != nil {
		return err
	}
	failpoint.At(failpoint.Again)
	e.towns.set(a.town, next)
	a.pending, a.begun = next.pending, next.pending.Attempt
	return nil
}

// commitConclusion stores how an application ended: the state, the receipt and the last events in
// one guarded message, as for a handoff that the rules apply.
func (e *Engine) commitConclusion(ctx context.Context, a *applying, current entry, c *conclusion) (Answer, error) {
	checked := Check(a.handoff, nil, current.state)
	if !checked.Accepted {
		return Answer{}, fmt.Errorf("worldengine: the state of %q changed while run %s was pending", a.town, a.runID)
	}
	after := current
	after.pending = nil
	var outcome handoff.Outcome
	if c.failed == nil {
		after.state = c.after
		outcome = checked.Executed(c.after)
	} else {
		outcome = checked.Failed(c.failed.Reason, current.state)
	}
	result := handoff.NewResult(a.handoff, outcome)
	wire, err := result.MarshalWire()
	if err != nil {
		return Answer{}, err
	}
	run, err := e.lastEvents(ctx, a, result, c.failed)
	if err != nil {
		return Answer{}, err
	}
	rec := record{Kind: kindHandoff, TownID: a.town, Result: wire, Run: run}
	msg, err := rec.message(logSubject(e.config.World, TownToken(a.town)), &after)
	if err != nil {
		return Answer{}, err
	}
	failpoint.At(failpoint.Closing)
	if after.seq, err = e.commitKey(ctx, msg, result.IdempotencyKey, current); err != nil {
		return Answer{}, err
	}
	failpoint.At(failpoint.Concluded)
	e.receipts.Remember(&dedupe.Receipt{
		Key: result.IdempotencyKey, LogSeq: after.seq, RunID: run.RunID,
		HandoffID: result.HandoffID, ResultID: result.ResultID, Result: wire,
	})
	e.towns.set(a.town, after)
	e.results.count(result.Status)
	e.alertFailure(a, c.failed)
	return Answer{RunID: run.RunID, Result: result, JSON: wire}, nil
}

// commitKey commits a conclusion. The first commit told the log's duplicate window of the key; where that
// is about to forget it, or has, or the clock cannot tell, this one does, so that no moment is left before
// the receipt in which another instance could accept the key for another town.
func (e *Engine) commitKey(ctx context.Context, msg *nats.Msg, key string, current entry) (uint64, error) {
	if since := e.config.Now().Sub(current.pending.Accepted); 0 <= since && since < duplicateWindow/2 {
		return e.log.commit(ctx, msg, current.seq)
	}
	msg.Header[jetstream.MsgIDHeader] = []string{key}
	seq, err := e.log.commit(ctx, msg, current.seq)
	var taken *keyTakenError
	if errors.As(err, &taken) { // it has not forgotten
		delete(msg.Header, jetstream.MsgIDHeader)
		return e.log.commit(ctx, msg, current.seq)
	}
	return seq, err
}

// lastEvents returns the events that end the run of a. Nobody else can go on with the run from then on.
func (e *Engine) lastEvents(
	ctx context.Context, a *applying, result *handoff.Result, failed *applyFailed,
) (*runevents.Run, error) {
	p, err := e.attemptsOf(a)
	if err != nil {
		return nil, err
	}
	tail, err := e.extendRun(ctx, a.town, p.Run(), a.pending.Emitted, true)
	if err != nil {
		return nil, err
	}
	p.Persisted(tail.next)
	if err := narrateEnd(p, result, a.pending.Attempt, failed); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	p.Run().Events = tail.without(p.Run())
	return p.Run(), nil
}

// tellAttempts emits the events of the attempts before this one, and that this one has started.
func (e *Engine) tellAttempts(ctx context.Context, a *applying) error {
	p, err := e.attemptsOf(a)
	if err != nil {
		return err
	}
	_, err = e.extendRun(ctx, a.town, p.Run(), a.pending.Emitted, false)
	return err
}

// attemptsOf returns a producer that goes on where the first commit of a run ended, having emitted the
// failures of the attempts before this one and the starts of the next. Those that were stored before
// are known by their keys.
func (e *Engine) attemptsOf(a *applying) (*runevents.Producer, error) {
	p := e.newProducer(a.pending.Run)
	evaluation := Check(a.handoff, nil, a.before).Outcome.Evaluation
	if err := narrateAccepted(p, a.handoff, &evaluation, atOnce); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	p.Persisted(a.pending.Emitted + 1)
	p.DrawIDs(a.pending.IDSeed)
	n := narrator{producer: p}
	for attempt := int64(1); attempt < a.pending.Attempt; attempt++ {
		n.attempt(runevents.StepFailed, attempt, failurePayload(a.pending.Last))
		n.attempt(runevents.StepStarted, attempt+1, nil)
	}
	return p, n.err
}
