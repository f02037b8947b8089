package game

import (
	"context"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// Watch looks at the applications that this writer knows, until ctx is done: that their runs
// are paused as their towns are, and that no pause waits for them for longer than its drain
// timeout.
func (w *Worker) Watch(ctx context.Context) {
	for backoff.Sleep(ctx, pollPause) == nil {
		now, seen := time.Now(), w.config.WorldPause.Known().Seq
		due := slices.DeleteFunc(w.applications.all(), func(a *application) bool {
			return a.look.world == seen && now.Before(a.look.next)
		})
		if len(due) == 0 {
			continue
		}
		for _, a := range due {
			a.look.world, a.look.next = seen, w.lookAtHeld(ctx, a)
		}
	}
}

// look is when Watch looks at an application again, and which pause of the world it has seen;
// its goroutine has it.
type look struct {
	next  time.Time
	world uint64
}

// lookAtHeld looks at an application, and returns when to do so again.
func (w *Worker) lookAtHeld(ctx context.Context, a *application) time.Time {
	next := time.Now().Add(w.config.Policy.Resend)
	current := w.Hold(ctx, a.town, a.command)
	if current.Pending == nil {
		return next
	}
	by := w.config.WorldPause.Of(current)
	if by == nil {
		return next
	}
	now, timeout := time.Now(), time.Duration(by.DrainTimeoutMs)*time.Millisecond
	if by.Draining(now) {
		return now.Add(min(w.config.Policy.Resend, by.At.Add(timeout).Sub(now)))
	}
	ofTown := ""
	if current.Paused != nil {
		ofTown = a.town
	}
	w.config.Raise(w.config.Environment.DrainTimeout(by.SignalID, ofTown, timeout))
	return next
}

// Hold has the run of a pending command of a town paused, or going on, as the log has the town and
// this writer the pause of the world, and returns the town; the zero one if it could not be read, or
// the command is not pending any more. What cannot be stored now, Watch stores.
func (w *Worker) Hold(
	ctx context.Context, townID string, p *apply.Pending,
) (current commitlog.Entry) {
	err := w.steps.Log.Retry(ctx, func() error {
		tail, err := w.steps.Log.Tail(ctx, p.Run.RunID, p.Emitted)
		if err != nil {
			return err
		}
		// The town is read behind the tail: what said that it is paused may be of the past.
		if current, err = w.load(ctx, townID, p.Run.RunID); err != nil {
			return err
		}
		in := w.steps.Input(townID, nil, &machine.Hold{By: w.config.WorldPause.Of(current)})
		in.Tail = &tail
		_, err = w.steps.Step(ctx, current, in)
		return err
	})
	if err != nil && ctx.Err() == nil {
		w.config.Logger.Warn("a pause, or its end, is not recorded in a run yet; will try again",
			"town", townID, "run", p.Run.RunID, p.Run.Trace.LogAttr(), "error", err)
	}
	return current
}

// Draining reports whether the command of a paused run is still being applied, and waited for. The
// run of another producer may name a town that it is not of.
func (w *Worker) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	inFlight := func(s runevents.StepSnapshot) bool {
		return s.StepID == lifecycle.StepApply && s.Status == runevents.StepRunning
	}
	if run.Status != runevents.RunIsPaused || !slices.ContainsFunc(run.Steps, inFlight) {
		return false, nil
	}
	townID := lifecycle.StartedTown(run)
	if townID == "" {
		return false, nil
	}
	if token, err := w.config.TownOf(ctx, run.RunID); err != nil ||
		token != wire.TownToken(townID) {
		return false, err
	}
	current, err := w.load(ctx, townID, run.RunID)
	if err != nil || current.Pending == nil {
		return false, err
	}
	by := w.config.WorldPause.Of(current)
	return by != nil && by.Draining(time.Now()), nil
}
