package worldengine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/queue"
)

// A handoff waits for its town behind a command that a game applies, or for the end of a pause. Its
// run is then recorded on the run's own subject of the log before the handoff is judged, so that
// operators see it and can cancel it. The handoff itself waits in the memory of the writer; the
// next writer ends the runs that a dead writer left (reapWaiting).

// queuedMoment is how long a handoff waits behind a command before its run is recorded. After a
// shorter wait, RunQueued is in the record of the decision, which saves a message.
const queuedMoment = 100 * time.Millisecond

// wait is the reason why a delivery waits. If by is set, the delivery waits for the end of that
// pause; world says whether the whole world is paused, not the town alone. If by is nil, the
// delivery waits for a command that is being applied to the town, in the run named by behind.
type wait struct {
	by     *commitlog.PausedBy
	world  bool
	behind string
}

// waitingRun is a run that is recorded before its handoff is judged. Repetitions of the handoff, by
// a client that got no answer, wait in the same run. cancelled reports that an operator has
// cancelled the run, which its deliveries may not know yet.
type waitingRun struct {
	id        string
	cancelled atomic.Bool
}

// handoffKey identifies a handoff in Engine.waits.
type handoffKey struct{ townID, key, handoffID string }

func (d *delivery) handoffKey() handoffKey {
	return handoffKey{d.handoff.Proposal.TownID, d.handoff.IdempotencyKey, d.handoff.HandoffID}
}

// cancelled returns the error of a delivery whose run was cancelled, nil if it was not.
func (d *delivery) cancelled() error {
	if d.waiting == nil || !d.waiting.cancelled.Load() {
		return nil
	}
	return game.Cancelled(d.waiting.id, false)
}

// repeats reports whether a delivery waits in the run of an earlier delivery of its handoff. A
// handoff that is sent after the run was cancelled is none.
func (e *Engine) repeats(d *delivery) bool {
	first, found := e.waits.Load(d.handoffKey())
	if !found || d.recorded || d.retries != nil {
		return false
	}
	run := first.(*waitingRun)
	if run != d.waiting && run.cancelled.Load() {
		return false
	}
	d.waiting = run
	return true
}

// waitsIn returns the run in which a submitted delivery waits: its own, or one that it repeats.
func (e *Engine) waitsIn(d *delivery) string {
	if first, found := e.waits.Load(d.handoffKey()); found {
		return first.(*waitingRun).id
	}
	return d.run.RunID
}

// waitOver removes the run of a delivery that waits no longer.
func (e *Engine) waitOver(d *delivery) {
	if d.recorded {
		e.waits.Delete(d.run.RunID)
		e.waits.CompareAndDelete(d.handoffKey(), d.waiting)
	}
}

// hold records that a delivery waits. It returns an error if the run was cancelled, or if the
// delivery has waited for Config.PauseWait in a pause, or for absentWait behind a command.
func (e *Engine) hold(ctx context.Context, d *delivery, why wait) (err error) {
	d.held = why
	waited, runID, townID := time.Since(d.queued), d.run.RunID, d.handoff.Proposal.TownID
	repeats := e.repeats(d)
	if err := d.cancelled(); err != nil {
		return err
	}
	if !repeats && (why.by != nil || waited >= queuedMoment) {
		err = e.recordWait(ctx, d, why.by)
	}
	if errors.Is(err, machine.ErrRunCancelled) {
		return game.Cancelled(runID, false)
	}
	if err != nil && ctx.Err() == nil {
		e.config.Logger.Warn("the run of a waiting handoff cannot be recorded yet",
			"run", runID, d.run.Trace.LogAttr(), "error", err)
	}
	switch {
	case why.by == nil && waited >= e.config.absentWait():
		return e.games.Absent(townID, why.behind, runID)
	case why.by != nil && waited >= e.config.PauseWait:
		return game.Paused(townID, why.world, why.by, runID, false)
	}
	return nil
}

// begin returns how the remaining events of a delivery's run begin.
func (d *delivery) begin() machine.Begin {
	// In whole milliseconds, like the input's time, from which the machine subtracts Waited.
	begin := machine.Begin{Waited: time.Since(d.queued).Truncate(time.Millisecond), Retry: d.retry}
	switch {
	case d.tail.Status == runevents.RunIsPaused:
		begin.Start = machine.StartResumed
	case d.tail.Status != "":
		begin.Start = machine.StartWaited
	case d.waited:
		begin.Start = machine.StartQueued
	}
	return begin
}

func (d *delivery) waitFor(by *commitlog.PausedBy) machine.Wait {
	return machine.Wait{Handoff: d.handoff, Run: d.run, Begin: d.begin(), By: by}
}

// recordWait records that the run of a delivery waits: for the end of a pause, by, or behind a
// command if by is nil. It records each of the two waits once. It returns machine.ErrRunCancelled
// if the run was cancelled.
func (e *Engine) recordWait(ctx context.Context, d *delivery, by *commitlog.PausedBy) error {
	if status := d.tail.Status; by == nil && status != "" || status == runevents.RunIsPaused {
		return nil
	}
	if !d.recorded {
		d.recorded, d.waiting = true, &waitingRun{id: d.run.RunID}
		e.waits.Store(d.run.RunID, d.waiting)
		if d.retries == nil {
			e.waits.Store(d.handoffKey(), d.waiting)
		}
	}
	return e.stepRun(ctx, d, new(d.waitFor(by)))
}

// closeRun closes a recorded run before its handoff is judged, so that no producer's event follows
// the run's end. The error is game.Cancelled if the run was cancelled before; if this server was
// suspended, the next writer may have cancelled even a closed run.
func (e *Engine) closeRun(ctx context.Context, d *delivery) error {
	err := d.cancelled()
	if err != nil || !d.recorded {
		return err
	}
	err = e.stepRun(ctx, d, &machine.Close{Wait: d.waitFor(nil)})
	if errors.Is(err, machine.ErrRunCancelled) {
		err = game.Cancelled(d.run.RunID, false)
	}
	return err
}

// reopenRun lets others append again to a closed run that is not about to end. emitted is the
// number of the run's events in the record that accepted its handoff; 0 if there is no such record.
// A run that stays closed loses nothing, so an error is only logged.
func (e *Engine) reopenRun(ctx context.Context, d *delivery, emitted int64) {
	if !d.tail.Closed {
		return
	}
	d.tail.Closed = false
	in := e.steps.Input(d.handoff.Proposal.TownID, nil, &machine.Open{Run: d.run, Emitted: emitted})
	if _, err := e.steps.Step(ctx, machine.Town{}, in); err != nil {
		e.config.Logger.Warn("a closed run cannot be reopened; others cannot append to it",
			"run", d.run.RunID, d.run.Trace.LogAttr(), "error", err)
	}
}

// stepRun makes the step of an event about the run of a delivery that waits.
func (e *Engine) stepRun(ctx context.Context, d *delivery, event machine.Event) error {
	return e.log.Retry(ctx, func() error {
		in := e.steps.Input(d.handoff.Proposal.TownID, nil, event)
		_, err := e.steps.Step(ctx, machine.Town{}, in)
		if in.Tail != nil {
			d.tail = *in.Tail
		}
		return err
	})
}

// abandon ends the run of a delivery that is not judged because of an error. An end that cannot be
// stored now is left to reapWaiting.
func (e *Engine) abandon(ctx context.Context, d *delivery, why error) {
	defer e.waitOver(d)
	if d.recorded && errors.Is(why, machine.ErrRunCancelled) {
		d.waiting.cancelled.Store(true) // repetitions may have their turn before cancelRun marks it
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	mayBeStored := d.tail.Closed && (errors.Is(why, commitlog.ErrLogUnavailable) || ctx.Err() != nil)
	if !d.recorded || mayBeStored || errors.Is(why, queue.ErrPanicked) ||
		errors.Is(why, machine.ErrRunCancelled) {
		return
	}
	err := e.stepRun(ctx, d, &machine.Abandon{
		Run: d.run, Handoff: d.handoff, Retry: d.retry, Why: game.Ends(why),
	})
	if err != nil && !errors.Is(err, machine.ErrRunCancelled) {
		e.config.Logger.Warn("a waiting run is left without an end; the server ends it later",
			"run", d.run.RunID, d.run.Trace.LogAttr(), "error", err)
	}
}

// endWaiting cancels a run that waits in any server; tail is the run's end in the log. The server
// in which the run waits answers the client. If the run has gone on, the error is
// commitlog.ErrLostRace.
func (e *Engine) endWaiting(
	ctx context.Context, tail *commitlog.RunTail, why machine.Cancellation,
) error {
	in := e.steps.Input(tail.Waiting.TownID, nil,
		&machine.Abandon{Run: tail.Waiting.Run.Identity, Why: why})
	in.Tail = tail
	_, err := e.steps.Step(ctx, machine.Town{}, in)
	return err
}

// isWaiting reports whether a run with this end in the log waits.
func isWaiting(tail *commitlog.RunTail) bool {
	return tail.Waiting != nil && !tail.Closed && !tail.Cancelled
}
