package engine

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Retry judges the handoff of the signal's run again, in a new run. That is possible only if the
// run failed because no plugin or console could be reached. Retry waits for the result, at most for
// wait; by then the handoff may still wait, or a game may still be applying its command. The new
// run records that the signal was accepted. The error of a refused signal is a *SignalError.
func (o *Signals) Retry(
	ctx context.Context, given Signal, wait time.Duration,
) (retried messages.Retried, err error) {
	reply := queue.NewFuture[Answer]()
	d, retried, err := o.newRetry(ctx, given)
	if err == nil {
		err = o.handoffs.submit(d, reply)
	}
	if err != nil {
		return retried, waiting.RetryNotJudged(given.RunID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer, err := d.awaitRetry(ctx, reply)
	if errors.Is(err, ErrInProgress) {
		err = nil
	}
	retried.Result = answer.JSON
	return retried, err
}

// newRetry returns the delivery that retries the run that a signal names. It records a refusal, and returns
// it as a *SignalError.
func (o *Signals) newRetry(
	ctx context.Context, given Signal,
) (d *delivery, retried messages.Retried, err error) {
	s, err := o.signalRecorder.newSignal(given)
	if err != nil {
		return nil, retried, err
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	end, seq, err := o.finalRecords.Get(ctx, s.RunID)
	var failed machine.FailedRun
	var refusal *approval.SignalRefusal
	if err == nil {
		failed, refusal, err = machine.NewFailedRun(s.RunID, seq, end)
	}
	if errors.Is(err, runs.ErrUnknownRun) {
		refusal, err = &approval.SignalRefusal{Code: wire.CodeUnknownRun, Message: err.Error()}, nil
	}
	if s.TownID = failed.TownID; err == nil && refusal != nil {
		err = o.signalRecorder.refuse(ctx, s, refusal)
	}
	if err != nil {
		return nil, retried, err
	}
	d, err = o.handoffs.newDelivery(failed.Handoff, failed.Trace)
	d.failedRun = &failed
	d.retryRequest = &machine.RetryRequest{RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason}
	return d, messages.Retried{TownID: s.TownID, HandoffID: failed.Handoff.HandoffID,
		RetryOf: s.RunID, RunID: d.run.RunID}, err
}

// awaitRetry returns the answer to a retry. It returns ErrInProgress while there is none yet.
func (d *delivery) awaitRetry(ctx context.Context, reply queue.Future[Answer]) (Answer, error) {
	answer, err := reply.Wait(ctx)
	var waits *WaitError
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, ErrInProgress),
		errors.As(err, &waits) && waits.Pending:
		return Answer{RunID: d.run.RunID}, ErrInProgress
	}
	return Answer{}, waiting.RetryNotJudged(d.retryRequest.RunID, err)
}
