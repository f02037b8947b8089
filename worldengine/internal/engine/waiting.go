package engine

import (
	"context"
	"errors"
	"iter"
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

// deliveries returns the unfinished deliveries of a town, in the order of their arrival after the one
// that has its turn. The queue is locked meanwhile.
func (e *Engine) deliveries(townID string) iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for task := range e.queue.Tasks(townID) {
			if d, ok := task.(*delivery); ok && !yield(d) {
				return
			}
		}
	}
}

// mayJoin reports whether a delivery may wait in the recorded run of an earlier delivery: both are of
// the same handoff, as by a client that got no answer, and none is a retry.
func (d *delivery) mayJoin(first *delivery) bool {
	return first != d && first.recorded.Load() && !d.recorded.Load() &&
		first.failedRun == nil && d.failedRun == nil &&
		d.handoff.IdempotencyKey == first.handoff.IdempotencyKey &&
		d.handoff.HandoffID == first.handoff.HandoffID
}

// waitingRun returns the run in which a delivery waits: its own, or the run of an earlier delivery of
// the same handoff.
func (e *Engine) waitingRun(d *delivery) string {
	for first := range e.deliveries(d.handoff.Proposal.TownID) {
		if d.mayJoin(first) && first.cancelledRun == "" {
			return first.run.RunID
		}
	}
	return d.run.RunID
}

// markCancelled marks each delivery that waits in a run that was cancelled. Handoffs sent later are new
// deliveries. It runs in the town's turn.
func (e *Engine) markCancelled(townID, runID string) {
	var first *delivery
	for d := range e.deliveries(townID) {
		if d.run.RunID == runID {
			first = d
		}
	}
	for d := range e.deliveries(townID) {
		if first != nil && (d == first || d.mayJoin(first)) {
			d.cancelledRun = runID
		}
	}
}

// postpone has a delivery wait, and records that in its run. It returns the time of the delivery's next turn.
// The error says that the run was cancelled, or that the client has waited long enough.
func (e *Engine) postpone(
	ctx context.Context, d *delivery, why waiting.Reason,
) (next time.Time, err error) {
	d.why = why
	runID, townID, now := d.run.RunID, d.handoff.Proposal.TownID, time.Now()
	if next = d.submittedAt.Add(unrecordedTimeout); why.Kind == waiting.EndOfPause || !now.Before(next) {
		next = queue.UntilWoken
		if e.waitingRun(d) == runID {
			err = e.recordWait(ctx, d, why.Pause)
		}
	}
	if errors.Is(err, machine.ErrRunCancelled) {
		return next, waiting.Cancelled(runID, false)
	}
	if err != nil && ctx.Err() == nil {
		e.config.Logger.Warn("the run of a waiting handoff cannot be recorded yet; will try again",
			"run", runID, d.run.Trace.LogAttr(), "error", err)
		next = now.Add(retryInterval)
	}
	deadline := d.submittedAt.Add(e.config.waitLimits().Timeout(why.Kind))
	switch {
	case now.Before(deadline):
		if deadline.Before(next) {
			next = deadline
		}
		return next, nil
	case why.Kind == waiting.EndOfPause:
		return next, waiting.Paused(townID, why, runID, false)
	case why.Kind == waiting.EndOfCommand:
		return next, e.dispatcher.CheckGame(townID, why.RunBefore, runID)
	}
	panic("engine: a reason to wait without an error for its client")
}

// runStart returns how a delivery's run begins.
func (d *delivery) runStart() machine.RunStart {
	// In whole milliseconds, like the input's time, from which the machine subtracts Waited.
	waited := time.Since(d.submittedAt).Truncate(time.Millisecond)
	return machine.RunStart{Queued: d.waited, Waited: waited, Retry: d.retryRequest}
}

// recordWait records that the run of a delivery waits: for the end of a pause, by, or behind a
// command if by is nil. It records each of the two waits once, and opens a run that a lost race left
// closed. It returns machine.ErrRunCancelled if the run was cancelled.
func (e *Engine) recordWait(ctx context.Context, d *delivery, by *messages.PausedBy) error {
	status := d.tail.Status
	if !d.tail.Closed && (by == nil && status != "" || status == runevents.RunStatusPaused) {
		return nil
	}
	d.recorded.Store(true)
	return e.stepRun(ctx, d, &machine.Wait{Handoff: d.handoff, Run: d.run, Start: d.runStart(), By: by})
}

// stepRun makes the step of an event about the run of a delivery that waits.
func (e *Engine) stepRun(ctx context.Context, d *delivery, event machine.Event) error {
	return e.log.RetryLostRaces(ctx, func() error {
		in := e.stepper.Input(d.handoff.Proposal.TownID, nil, event)
		_, err := e.stepper.Step(ctx, machine.Town{}, in)
		if in.Tail != nil {
			d.tail = *in.Tail
		}
		return err
	})
}

// cancelWaiting ends the run of a delivery that is not judged because of an error. An end that cannot be
// stored now is left to reapWaiting.
func (e *Engine) cancelWaiting(ctx context.Context, d *delivery, why error) {
	if errors.Is(why, machine.ErrRunCancelled) {
		e.markCancelled(d.handoff.Proposal.TownID, d.run.RunID) // perhaps by another server
		return
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	mayBeStored := d.tail.Closed && (errors.Is(why, commitlog.ErrLogUnavailable) || ctx.Err() != nil)
	if !d.recorded.Load() || mayBeStored || errors.Is(why, queue.ErrPanicked) {
		return
	}
	err := e.stepRun(ctx, d, &machine.CancelWaiting{
		Run: d.run, Handoff: d.handoff, Retry: d.retryRequest, Why: waiting.CancellationFor(why),
	})
	if err != nil && !errors.Is(err, machine.ErrRunCancelled) {
		e.config.Logger.Warn("a waiting run is left without an end; the server ends it later",
			"run", d.run.RunID, d.run.Trace.LogAttr(), "error", err)
	}
}

// cancelLeftRun cancels a run that waits in any server; tail is the run's end in the log. The server
// in which the run waits answers the client. If the run has gone on, the error is
// commitlog.ErrLostRace.
func (e *Engine) cancelLeftRun(
	ctx context.Context, tail *machine.RunTail, why machine.Cancellation,
) error {
	in := e.stepper.Input(tail.FirstRecord.TownID, nil,
		&machine.CancelWaiting{Run: tail.FirstRecord.Run.Identity, Why: why})
	in.Tail = tail
	_, err := e.stepper.Step(ctx, machine.Town{}, in)
	return err
}
