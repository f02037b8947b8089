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
func (s *Signals) Retry(
	ctx context.Context, request Signal, wait time.Duration,
) (retried messages.Retried, err error) {
	reply := queue.NewFuture[Answer]()
	d, retried, err := s.newRetry(ctx, request)
	if err == nil {
		err = s.handoffs.submit(d, reply)
	}
	if err != nil {
		return retried, waiting.RetryNotJudged(request.RunID, err)
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
func (s *Signals) newRetry(
	ctx context.Context, request Signal,
) (d *delivery, retried messages.Retried, err error) {
	signal, err := s.signalRecorder.newSignal(request)
	if err != nil {
		return nil, retried, err
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	end, seq, err := s.finalRecords.Get(ctx, signal.RunID)
	var failed machine.FailedRun
	var refusal *approval.SignalRefusal
	if err == nil {
		failed, refusal, err = machine.NewFailedRun(signal.RunID, seq, end)
	}
	if errors.Is(err, runs.ErrUnknownRun) {
		refusal, err = &approval.SignalRefusal{Code: wire.CodeUnknownRun, Message: err.Error()}, nil
	}
	if signal.TownID = failed.TownID; err == nil && refusal != nil {
		err = s.signalRecorder.refuse(ctx, signal, refusal)
	}
	if err != nil {
		return nil, retried, err
	}
	d, err = s.handoffs.newDelivery(failed.Handoff, failed.Trace)
	d.failedRun = &failed
	d.retryRequest = &machine.RetryRequest{RunID: signal.RunID, ActorID: signal.ActorID, Reason: signal.Reason}
	return d, messages.Retried{TownID: signal.TownID, HandoffID: failed.Handoff.HandoffID,
		RetryOf: signal.RunID, RunID: d.run.RunID}, err
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
