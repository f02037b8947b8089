package worldengine

import (
	"context"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// watchHeld looks at the applications that this instance knows, until ctx is done: that their runs
// are paused as their towns are, and that no pause waits for them for longer than its drain
// timeout.
func (e *Engine) watchHeld(ctx context.Context) {
	for backoff.Sleep(ctx, pollPause) == nil {
		now, seen := time.Now(), e.worldPause.Known().Seq
		due := slices.DeleteFunc(e.applications.All(), func(a *application) bool {
			return a.look.world == seen && now.Before(a.look.next)
		})
		if len(due) == 0 {
			continue
		}
		// Two instances that know different pauses of the world would undo each other's events.
		world, err := e.worldPause.Read(ctx)
		if err != nil {
			continue
		}
		for _, a := range due {
			a.look.world, a.look.next = world.Seq, e.lookAtHeld(ctx, a)
		}
	}
}

// look is when watchHeld looks at an application again, and which pause of the world it has seen;
// its goroutine has it.
type look struct {
	next  time.Time
	world uint64
}

// lookAtHeld looks at an application, and returns when to do so again.
func (e *Engine) lookAtHeld(ctx context.Context, a *application) time.Time {
	next := time.Now().Add(e.config.Plugin.Resend)
	current, err := e.log.Load(ctx, a.town)
	if err != nil || current.Pending == nil || current.Pending.Run.RunID != a.runID {
		return next
	}
	e.holdRun(ctx, a.town, current)
	by := e.pauseOf(current)
	if by == nil {
		return next
	}
	now, timeout := time.Now(), time.Duration(by.DrainTimeoutMs)*time.Millisecond
	if by.Draining(now) {
		return now.Add(min(e.config.Plugin.Resend, by.At.Add(timeout).Sub(now)))
	}
	ofTown := ""
	if current.Paused != nil {
		ofTown = a.town
	}
	e.alerts.RaiseOnce(e.environment().DrainTimeout(by.SignalID, ofTown, timeout))
	return next
}

// holdRun has the run that is pending in a town paused, or going on, as current says of the town.
// What cannot be stored now, watchHeld stores.
func (e *Engine) holdRun(ctx context.Context, townID string, current commitlog.Entry) {
	err := e.inHand().Hold(ctx, townID, current.Pending, e.pauseOf(current),
		func() (*commitlog.PausedBy, error) {
			if _, err := e.worldPause.Read(ctx); err != nil {
				return nil, err
			}
			now, err := e.log.Load(ctx, townID)
			return e.pauseOf(now), err
		})
	if err != nil && ctx.Err() == nil {
		e.config.Logger.Warn("a pause, or its end, is not told in a run yet; will try again",
			"town", townID, "run", current.Pending.Run.RunID,
			current.Pending.Run.Trace.LogAttr(), "error", err)
	}
}

// Draining reports whether the command of a paused run is still being applied, and waited for. The
// run of another producer may name a town that it is not of.
func (e *Engine) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	inFlight := func(s runevents.StepSnapshot) bool {
		return s.StepID == lifecycle.StepApply && s.Status == runevents.StepRunning
	}
	if run.Status != runevents.RunIsPaused || !slices.ContainsFunc(run.Steps, inFlight) {
		return false, nil
	}
	townID := startedTown(run)
	if townID == "" {
		return false, nil
	}
	if token, err := e.runs.Town(ctx, run.RunID); err != nil || token != wire.TownToken(townID) {
		return false, err
	}
	current, err := e.pendingOf(ctx, townID, run.RunID)
	if err != nil || current.Pending == nil {
		return false, err
	}
	by := e.pauseOf(current)
	return by != nil && by.Draining(time.Now()), nil
}
