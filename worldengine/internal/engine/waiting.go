package engine

import (
	"context"
	"errors"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
)

// A handoff waits for its town behind a command that a game applies, or for the end of a pause. Its
// run is then recorded on the run's own subject of the log before the handoff is judged, so that
// operators see it and can cancel it. The handoff itself waits in the memory of the writer; the
// next writer ends the runs that a dead writer left (reapWaiting).

// unrecordedTimeout is how long a handoff waits behind a command before its run is recorded. After a
// shorter wait, RunQueued is in the record of the decision, which saves a message.
const unrecordedTimeout = 100 * time.Millisecond

// mayJoin reports whether a delivery may wait in the recorded run of an earlier delivery: both are of
// the same handoff, as by a client that got no answer, and none is a retry.
func (d *delivery) mayJoin(first *delivery) bool {
	return first != d && first.recorded.Load() && !d.recorded.Load() &&
		first.failedRun == nil && d.failedRun == nil &&
		d.handoff.IdempotencyKey == first.handoff.IdempotencyKey &&
		d.handoff.HandoffID == first.handoff.HandoffID
}

// waitingRun returns the run in which the delivery waits: its own, or the run of an earlier delivery of
// the same handoff.
func (d *delivery) waitingRun() string {
	for first := range d.handoffs.deliveries(d.townID()) {
		if d.mayJoin(first) && first.cancelledRun == "" {
			return first.run.RunID
		}
	}
	return d.run.RunID
}

// postpone has the delivery wait, and records that in its run. It returns the time of the delivery's next turn.
// The error says that the run was cancelled, or that the client has waited long enough.
func (d *delivery) postpone(ctx context.Context, reason waiting.Reason) (next time.Time, err error) {
	d.reason = reason
	runID, townID, now := d.run.RunID, d.townID(), time.Now()
	if next = d.submittedAt.Add(unrecordedTimeout); reason.Kind == waiting.EndOfPause || !now.Before(next) {
		next = queue.UntilWoken
		if d.waitingRun() == runID {
			err = d.recordWait(ctx, reason.Pause)
		}
	}
	if errors.Is(err, machine.ErrRunCancelled) {
		return next, waiting.Cancelled(runID, false)
	}
	if err != nil && ctx.Err() == nil {
		d.handoffs.logger.Warn("the run of a waiting handoff cannot be recorded yet; will try again",
			"run", runID, d.run.Trace.LogAttr(), "error", err)
		next = now.Add(retryInterval)
	}
	deadline := d.submittedAt.Add(d.handoffs.limits.Timeout(reason.Kind))
	switch {
	case now.Before(deadline):
		if deadline.Before(next) {
			next = deadline
		}
		return next, nil
	case reason.Kind == waiting.EndOfPause:
		return next, waiting.Paused(townID, reason, runID, false)
	case reason.Kind == waiting.EndOfCommand:
		return next, d.handoffs.dispatcher.CheckGame(townID, reason.RunBefore, runID)
	}
	panic("engine: a reason to wait without an error for its client")
}

// WaitReason implements waiting.Waiter.
func (d *delivery) WaitReason() waiting.Reason { return d.reason }

// waitReason returns why a task waits; the zero Reason if it does not say that.
func waitReason(task queue.Task) (reason waiting.Reason) {
	if w, ok := task.(waiting.Waiter); ok {
		reason = w.WaitReason()
	}
	return reason
}

// waitBehind has the delivery wait for the same reason as the task before it. If that task does not say its reason,
// the delivery waits until the town is woken, and its run is not recorded.
func (d *delivery) waitBehind(ctx context.Context, before queue.Task) (next time.Time, err error) {
	if reason := waitReason(before); reason.Kind != waiting.Nothing {
		return d.postpone(ctx, reason)
	}
	return queue.UntilWoken, nil
}

// runStart returns how the delivery's run begins.
func (d *delivery) runStart() machine.RunStart {
	// In whole milliseconds, like the input's time, from which the machine subtracts Waited.
	waited := time.Since(d.submittedAt).Truncate(time.Millisecond)
	return machine.RunStart{Queued: d.waited, Waited: waited, Retry: d.retryRequest}
}

// recordWait records that the run of the delivery waits: for the end of a pause, by, or behind a
// command if by is nil. It records each of the two waits once, and opens a run that a lost race left
// closed. It returns machine.ErrRunCancelled if the run was cancelled.
func (d *delivery) recordWait(ctx context.Context, by *messages.PausedBy) error {
	status := d.tail.Status
	if !d.tail.Closed && (by == nil && status != "" || status == runevents.RunStatusPaused) {
		return nil
	}
	d.recorded.Store(true)
	return d.stepRun(ctx, &machine.Wait{Handoff: d.handoff, Run: d.run, Start: d.runStart(), By: by})
}

// stepRun makes the step of an event about the run of the delivery, which waits.
func (d *delivery) stepRun(ctx context.Context, event machine.Event) error {
	return d.handoffs.log.RetryLostRaces(ctx, func() error {
		in := d.handoffs.stepper.Input(d.townID(), nil, event)
		_, err := d.handoffs.stepper.Step(ctx, machine.Town{}, in)
		if in.Tail != nil {
			d.tail = *in.Tail
		}
		return err
	})
}

// cancelWaiting ends the run of the delivery, which is not judged because of an error. An end that cannot be
// stored now is left to reapWaiting.
func (d *delivery) cancelWaiting(ctx context.Context, cause error) {
	if errors.Is(cause, machine.ErrRunCancelled) {
		d.handoffs.markCancelled(d.townID(), d.run.RunID) // perhaps by another server
		return
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	mayBeStored := d.tail.Closed && (errors.Is(cause, commitlog.ErrLogUnavailable) || ctx.Err() != nil)
	if !d.recorded.Load() || mayBeStored || errors.Is(cause, queue.ErrPanicked) {
		return
	}
	err := d.stepRun(ctx, &machine.CancelWaiting{
		Run: d.run, Handoff: d.handoff, Retry: d.retryRequest, Why: waiting.CancellationFor(cause),
	})
	if err != nil && !errors.Is(err, machine.ErrRunCancelled) {
		d.handoffs.logger.Warn("a waiting run is left without an end; the server ends it later",
			"run", d.run.RunID, d.run.Trace.LogAttr(), "error", err)
	}
}
