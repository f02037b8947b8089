package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// Retried is the run in which the handoff of another run is tried again.
type Retried struct {
	TownID, HandoffID, RunID string
	// Answer is nil if there is none yet: the handoff waits, or its command is being applied.
	Answer *Answer
}

// Retry judges the handoff of the run that a signal names again, in another run, if that one failed
// since no plugin or console could be reached, and waits for so long for the answer. The signal is
// accepted in the new run; the error of one that is refused is a *SignalError.
func (e *Engine) Retry(ctx context.Context, s Signal, wait time.Duration) (Retried, error) {
	s = s.WithDefaults()
	reading, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	failed, refusal, err := e.ends.Failed(reading, s.RunID)
	if errors.Is(err, runs.ErrUnknownRun) {
		refusal, err = &runs.Refusal{Code: wire.CodeUnknownRun, Message: err.Error()}, nil
	}
	if err != nil {
		return Retried{}, err
	}
	if s.TownID = failed.TownID; refusal != nil {
		return Retried{}, e.refuse(reading, &s, refusal.Code, refusal.Message)
	}
	d, err := e.newDelivery(failed.Handoff, failed.Trace)
	if err != nil {
		return Retried{}, err
	}
	d.retries = &failed
	d.retry = &machine.Retry{RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason}
	retried := Retried{
		TownID: s.TownID, HandoffID: failed.Handoff.HandoffID, RunID: d.run.RunID,
	}
	ctx, cancelWait := context.WithTimeout(ctx, wait)
	defer cancelWait()
	answer, err := e.await(ctx, d)
	var waits *WaitError
	switch {
	case err == nil:
		retried.Answer = &answer
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, ErrInProgress),
		errors.As(err, &waits) && waits.Pending:
	default:
		return Retried{}, game.OfRetry(s.RunID, err)
	}
	return retried, nil
}
