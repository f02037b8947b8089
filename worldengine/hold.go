package worldengine

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// The run of a command that is being applied is PAUSED while its town, or the world, is. Its
// RunPaused and RunResumed stand on the run's own subject. Any instance may emit them: which is due
// is decided by the end of the run, and stored under its guard, so that each is there once, and
// nothing is lost with the instance that took the signal
// (docs/adr/0022-a-run-in-hand-is-paused.md).

// watchHeld looks at the applications that this instance knows, until ctx is done: that their runs
// are paused as their towns are, and that no pause waits for them for longer than its drain
// timeout.
func (e *Engine) watchHeld(ctx context.Context) {
	for backoff.Sleep(ctx, pollPause) == nil {
		due := e.applications.due(time.Now(), e.worldPause.Known().Seq)
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
	pending, by := current.Pending, e.pauseOf(current)
	p := e.newProducer(pending.Run)
	_, err := e.runs.ExtendBy(ctx, townID, pending.Run, pending.Emitted, false,
		func(tail *commitlog.RunTail) ([]runevents.Event, error) {
			paused := tail.PausedAt > pending.Emitted
			if tail.Closed || paused == (by != nil) {
				return nil, nil
			}
			p.Restart()
			if paused {
				return released(p, tail, "")
			}
			p.ResumeAt(runevents.RunRunning)
			err := lifecycle.EmitHeld(p, tail.Pauses+1, by.SignalID, by.Reason)
			return p.Run().Events, err
		})
	if err != nil && ctx.Err() == nil {
		e.config.Logger.Warn("a pause, or its end, is not told in a run yet; will try again",
			"town", townID, "run", pending.Run.RunID, "error", err)
	}
}

// released returns the event by which a paused run goes on.
func released(
	p *runevents.Producer, tail *commitlog.RunTail, reason string,
) ([]runevents.Event, error) {
	p.ResumeAt(runevents.RunIsPaused)
	err := lifecycle.EmitReleased(p, tail.Pauses, reason)
	return p.Run().Events, err
}

// unheld returns the events of the run of a that its end lacks. Where the run is paused and one of
// them, or with ends what is to follow them, cannot be in a pause, it is resumed before: an attempt
// starts when its pause is over, and a command whose outcome comes in a pause is concluded
// (Execution Semantics v1, section 6, option A).
func (e *Engine) unheld(
	a *application, run *runevents.Run, tail *commitlog.RunTail, ends bool,
) ([]runevents.Event, error) {
	fresh, reason := tail.Without(run), ""
	starts := func(event runevents.Event) bool { return event.EventType == runevents.StepStarted }
	if tail.PausedAt <= a.Pending.Emitted || !ends && !slices.ContainsFunc(fresh, starts) {
		return fresh, nil
	}
	if ends {
		reason = "What became of the command is known: the run ends."
	}
	resumed, err := released(e.newProducer(run.Identity), tail, reason)
	return append(resumed, fresh...), err
}

// Draining reports whether the command of a paused run is still being applied, and waited for. The run
// of another producer may name a town that it is not of.
func (e *Engine) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	inFlight := func(s runevents.StepSnapshot) bool {
		return s.StepID == lifecycle.StepApply && s.Status == runevents.StepRunning
	}
	if run.Status != runevents.RunIsPaused || !slices.ContainsFunc(run.Steps, inFlight) {
		return false, nil
	}
	var asked struct {
		TownID string `json:"townId"`
	}
	if json.Unmarshal(run.Metadata.Started, &asked) != nil || asked.TownID == "" {
		return false, nil
	}
	if token, err := e.runs.Town(ctx, run.RunID); err != nil || token != wire.TownToken(asked.TownID) {
		return false, err
	}
	current, err := e.log.Load(ctx, asked.TownID)
	if err != nil || current.Pending == nil || current.Pending.Run.RunID != run.RunID {
		return false, err
	}
	by := e.pauseOf(current)
	return by != nil && by.Draining(time.Now()), nil
}
