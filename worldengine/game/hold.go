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
	"worldengine/worldengine/index"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// Watch pauses and resumes the runs of this writer's applications with their towns, until ctx is
// done. It raises an alert if a command outlasts the drain timeout of a pause. It reads the log
// when a town, the pause of the world, or the run has changed, and at the time look.next.
func (w *Worker) Watch(ctx context.Context) {
	for backoff.Sleep(ctx, pollPause) == nil {
		all := w.all()
		if len(all) == 0 {
			continue
		}
		world, towns := w.config.WorldPause.Known().Seq, w.config.Index.Newest(index.Pending)
		for _, a := range all {
			now := look{town: towns[wire.TownToken(a.TownID)], world: world,
				starts: a.started.Load(), next: a.look.next}
			due := !now.next.IsZero() && !time.Now().Before(now.next)
			if due || now != a.look {
				now.next = w.lookAtHeld(ctx, a)
				a.look = now
			}
		}
	}
}

// look is the state of an application at the last look of Watch: the sequences of the town's last
// record and of the pause of the world, and Application.started. At next, Watch looks again even if
// nothing has changed; with a zero next it does not.
type look struct {
	town, world uint64
	starts      int64
	next        time.Time
}

// lookAtHeld reviews an application, and returns look.next.
func (w *Worker) lookAtHeld(ctx context.Context, a *Application) (next time.Time) {
	current, ok := w.Hold(ctx, a.TownID, a.stored)
	if !ok {
		return time.Now().Add(w.config.Policy.Resend)
	}
	by := w.config.WorldPause.Of(current)
	if current.Pending == nil || by == nil {
		return next
	}
	next = time.Now().Add(w.config.Policy.Resend)
	timeout := time.Duration(by.DrainTimeoutMs) * time.Millisecond
	if by.Draining(time.Now()) {
		if end := by.At.Add(timeout); end.Before(next) {
			next = end
		}
		return next
	}
	paused := "the world"
	if current.Paused != nil {
		paused = a.TownID
	}
	w.config.Alerts.RaiseOnce(alerts.DrainTimeout.About(alerts.About{RunID: by.SignalID},
		"{timeout}", timeout.String(), "{paused}", paused))
	return next
}

// Hold pauses or resumes the run of a town's pending command, as the town's entry in the log and
// the known pause of the world require. It returns the entry. ok is false if the log failed; Watch
// tries again.
func (w *Worker) Hold(
	ctx context.Context, townID string, p *apply.Pending,
) (current commitlog.Entry, ok bool) {
	err := w.steps.Log.Retry(ctx, func() error {
		tail, err := w.steps.Log.Tail(ctx, p.Run.RunID, p.Emitted)
		if err != nil {
			return err
		}
		// Read the town after the tail: the caller's town may be stale.
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
	return current, err == nil
}

// Draining reports whether this writer is applying the command of a paused run, within the drain
// timeout.
func (w *Worker) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	inFlight := func(s runevents.StepSnapshot) bool {
		return s.StepID == machine.StepApply && s.Status == runevents.StepRunning
	}
	townID := machine.ReadStarted(run).TownID
	if run.Status != runevents.RunIsPaused || !slices.ContainsFunc(run.Steps, inFlight) ||
		w.of(townID, run.RunID) == nil {
		return false, nil
	}
	current, err := w.steps.Log.Load(ctx, townID)
	by := w.config.WorldPause.Of(current)
	return err == nil && by != nil && by.Draining(time.Now()), err
}
