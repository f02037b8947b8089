package game

import (
	"context"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// Watch reviews this writer's applications until ctx is done: their runs are paused with their
// towns, and no pause waits for them longer than its drain timeout.
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

// look is the time of Watch's next look at an application, and the pause of the world that it has
// seen; Watch's goroutine owns it.
type look struct {
	next  time.Time
	world uint64
}

// lookAtHeld reviews an application, and returns the time of the next review.
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
	paused := "the world"
	if current.Paused != nil {
		paused = a.town
	}
	w.config.Raise(alerts.DrainTimeout.About(alerts.About{RunID: by.SignalID},
		"{timeout}", timeout.String(), "{paused}", paused))
	return next
}

// Hold pauses or resumes the run of a town's pending command, by the log's town and this writer's
// pause of the world. It returns the town; the zero one if it could not be read, or the command is
// no longer pending. Watch stores what Hold cannot.
func (w *Worker) Hold(
	ctx context.Context, townID string, p *apply.Pending,
) (current commitlog.Entry) {
	err := w.steps.Log.Retry(ctx, func() error {
		tail, err := w.steps.Log.Tail(ctx, p.Run.RunID, p.Emitted)
		if err != nil {
			return err
		}
		// The town is read behind the tail: the caller's town may be stale.
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

// Draining reports whether a paused run's command is still being applied, and waited for. Another
// producer's run may name a wrong town.
func (w *Worker) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	inFlight := func(s runevents.StepSnapshot) bool {
		return s.StepID == machine.StepApply && s.Status == runevents.StepRunning
	}
	if run.Status != runevents.RunIsPaused || !slices.ContainsFunc(run.Steps, inFlight) {
		return false, nil
	}
	townID := machine.StartedTown(run)
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
