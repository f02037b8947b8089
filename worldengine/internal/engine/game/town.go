package game

import (
	"context"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// startWait notes that the execution waits, unless it does already.
func (x *Execution) startWait(now time.Time) {
	if !x.wait.isOn() {
		x.wait.since = now
	}
	if x.reads.err != nil && x.dispatcher.ctx.Err() == nil {
		x.dispatcher.config.Logger.Warn("a command waits: its town cannot be read, so it is not known whether it is "+
			"paused; will try again",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", x.reads.err)
	}
}

// endWait goes on after a wait, which does not count as time of the attempt.
func (x *Execution) endWait(now time.Time) {
	x.game.prolong(now.Sub(x.wait.since))
	x.wait.since = time.Time{}
}

// readTown is syncWithTown, and notes when the town is to be read again.
func (x *Execution) readTown(ctx context.Context, fresh bool) townView {
	current, err := x.syncWithTown(ctx, fresh)
	if err != nil {
		x.reads.noteFailure(time.Now(), err, current.Seq != 0)
		return townView{}
	}
	if x.reads.err = nil; fresh {
		x.noteFreshRead(time.Now().Add(x.dispatcher.config.Retry.RereadInterval()))
	}
	pause := waiting.ReasonFor(current, x.dispatcher.config.WorldPause.Known().By)
	return townView{Town: current, pause: pause, isRead: true, isFresh: fresh}
}

// loadTimeout bounds a load, which has a worker meanwhile.
const loadTimeout = 2 * time.Second

// syncWithTown makes the execution agree with its town, as this writer knows the town or, with fresh, as the
// log has it. It raises an alert if the command outlasts the drain timeout of a pause.
func (x *Execution) syncWithTown(ctx context.Context, fresh bool) (current machine.Town, err error) {
	d, load := x.dispatcher, x.dispatcher.stepper.TownCache.Get
	if fresh {
		load = d.stepper.Log.Load
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	if current, err = load(ctx, x.TownID); err == nil {
		err = d.Reconcile(ctx, x.TownID, current)
	}
	if err != nil || x.phase == ended {
		return current, err
	}
	if by := d.config.WorldPause.Effective(current); by != nil && !by.Draining(time.Now()) {
		paused := "the world"
		if current.Paused != nil {
			paused = x.TownID
		}
		timeout := time.Duration(by.DrainTimeoutMs) * time.Millisecond
		d.config.Alerts.RaiseOnce(alerts.DrainTimeout.Alert(alerts.About{RunID: by.SignalID},
			"{timeout}", timeout.String(), "{paused}", paused))
	}
	return current, nil
}

// updatePending goes on with the pending command as the log has it. If another writer has begun the next
// attempt, the present one ends, unless its outcome is that the command was applied.
func (x *Execution) updatePending(p *apply.Pending) {
	next := p.Attempt != x.Pending.Attempt
	if x.Pending = p; !next || x.result != nil && x.result.Applied {
		return
	}
	x.dispatcher.stepper.TownCache.Forget(x.TownID)
	x.scheduleAttempt()
}

// pauseRun pauses the run of the command, or resumes it if by is nil, unless the log has that already. If
// the log does not answer, the next turn tries again.
func (x *Execution) pauseRun(ctx context.Context, by *messages.PausedBy) {
	if x.paused != nil && *x.paused == (by != nil) {
		return
	}
	d := x.dispatcher
	err := d.stepper.Log.RetryLostRaces(ctx, func() error {
		tail, err := d.stepper.Log.Tail(ctx, x.RunID, x.Pending.Emitted)
		if err != nil {
			return err
		}
		// The town is read after the tail, since another writer may have resumed it.
		current, err := d.loadForRun(ctx, x.TownID, x.RunID)
		if err != nil {
			return err
		}
		by = d.config.WorldPause.Effective(current)
		in := d.stepper.Input(x.TownID, nil, &machine.PauseRun{By: by})
		in.Tail = &tail
		_, err = d.stepper.Step(ctx, current, in)
		return err
	})
	if err == nil {
		x.paused = new(by != nil)
	} else if ctx.Err() == nil {
		d.config.Logger.Warn("a pause, or its end, is not recorded in a run yet; will try again",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
}
