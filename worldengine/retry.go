package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/dedupe"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/retry"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// Retried is the run in which the handoff of another run is tried again.
type Retried struct {
	TownID, HandoffID, RunID string
	// Answer is nil where there is none yet: the handoff waits, or its command is being applied.
	Answer *Answer
}

// Retry judges the handoff of the run that a signal names again, in another run, if that one failed
// since no plugin or console could be reached, and waits for so long for the answer. The signal is
// accepted in the new run; the error of one that is refused is a *SignalError.
func (e *Engine) Retry(ctx context.Context, s Signal, wait time.Duration) (Retried, error) {
	s = s.WithDefaults()
	reading, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	failed, refusal, err := e.ends().Failed(reading, s.RunID)
	if errors.Is(err, runs.ErrUnknownRun) {
		refusal, err = &retry.Refusal{Code: wire.CodeUnknownRun, Message: err.Error()}, nil
	}
	if err != nil {
		return Retried{}, err
	}
	if s.TownID = failed.TownID; refusal != nil {
		return Retried{}, e.recorder().Refuse(reading, &s, refusal.Code, refusal.Message)
	}
	d, err := e.newDelivery(failed.Handoff, failed.Trace)
	if err != nil {
		return Retried{}, err
	}
	d.retries = &failed
	d.Retry = &lifecycle.Retry{RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason}
	told := Retried{TownID: s.TownID, HandoffID: failed.Handoff.HandoffID, RunID: d.Identity.RunID}
	ctx, cancelWait := context.WithTimeout(ctx, wait)
	defer cancelWait()
	answer, err := queue.Wait(ctx, func(done func(Answer, error)) error {
		return e.submit(d, done)
	})
	var held *PausedError
	var absent *waiting.AbsentError
	switch {
	case err == nil:
		told.Answer = &answer
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, ErrInProgress),
		errors.As(err, &held) && held.Accepted, errors.As(err, &absent) && absent.Accepted:
	default:
		return Retried{}, waiting.OfRetry(s.RunID, err)
	}
	return told, nil
}

// ends returns what reads how runs have ended.
func (e *Engine) ends() *retry.Reader { return &retry.Reader{Log: e.log, Ended: e.endOfRun} }

// recordOfEnd returns the record with which a run ended: see retry.Reader.End.
func (e *Engine) recordOfEnd(ctx context.Context, runID string) (*commitlog.Record, error) {
	rec, _, err := e.ends().End(ctx, runID)
	return rec, err
}

// mayRetry refuses a delivery that tries a run again which the receipt of its key does not name any
// more.
func (e *Engine) mayRetry(ctx context.Context, d *delivery, prior *dedupe.Receipt) error {
	return e.refuseRetry(ctx, d, d.retries.Judge(prior))
}

// inProgress returns what a delivery is told whose command is being applied, in another run: why,
// where it is no retry.
func (e *Engine) inProgress(
	ctx context.Context, d *delivery, current commitlog.Entry, why error,
) error {
	switch {
	case d.retries == nil:
		return why
	case current.Pending == nil || current.Pending.Run.PlanID != d.Identity.PlanID,
		current.Pending.Run.RunID == d.retries.RunID:
		// it has ended elsewhere, which this instance is about to learn
		e.towns.Forget(d.Handoff.Proposal.TownID)
		return commitlog.ErrContended
	}
	return e.refuseRetry(ctx, d, retry.InHand(current.Pending.Run.RunID))
}

// refuseRetry records that a retry is refused, and returns the refusal; nil where there is none.
func (e *Engine) refuseRetry(ctx context.Context, d *delivery, refusal *retry.Refusal) error {
	if refusal == nil {
		return nil
	}
	return e.recorder().Refuse(ctx, &Signal{
		Kind: lifecycle.SignalRetry, TownID: d.Handoff.Proposal.TownID, RunID: d.Retry.RunID,
		HandoffID: d.Handoff.HandoffID, ActorID: d.Retry.ActorID, Reason: d.Retry.Reason,
	}, refusal.Code, refusal.Message)
}
