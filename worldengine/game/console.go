package game

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// console has a command applied by RCON: at most once. While the console is away nothing is sent, and
// the command waits for it as for a plugin.
func (w *Worker) console(
	ctx context.Context, a *application, command *apply.Command,
) (apply.Result, bool) {
	if !a.knows.Load() {
		return apply.InDoubt("The engine ended while the command was on its way to the console."),
			true
	}
	if w.config.RCON == nil {
		return apply.Result{Failed: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}}, true
	}
	if a.Pending.Attempt > 1 && w.superseded(ctx, a) {
		return past()
	}
	pauses := backoff.Backoff{Min: pollPause, Max: w.config.Policy.Resend, Draw: w.config.Draw}
	for said := ""; ; {
		for !a.gate.Pass() { // an operator cancels the run
			held, gone := w.waitUnpaused(ctx, a)
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			if gone {
				return past()
			}
			a.ends, command.Deadline = a.ends.Add(held), command.Deadline.Add(held)
		}
		bounded, cancel := context.WithDeadline(ctx, a.ends)
		answer, err := w.config.RCON.Apply(bounded, command)
		cancel()
		if !apply.NotApplied(err) {
			a.gate.Reached()
			a.away.Store(nil)
			w.sighted(ctx, a, false, true)
			return apply.ConsoleResult(answer, err), true
		}
		if a.gate.Missed(); ctx.Err() != nil {
			return apply.Result{}, false
		}
		if w.config.Policy.Absent != apply.AbsentWait {
			return apply.ConsoleResult(answer, err), true
		}
		if text := wire.Sentence(err); text != said {
			said = text
			w.config.Logger.Warn("the console is away, and a command waits for it; will try again",
				"town", a.town, "run", a.runID, a.replies.Trace.LogAttr(), "error", err)
		}
		w.consoleAway(ctx, a, said, pauses.Next())
		if _, gone := w.waitUnpaused(ctx, a); gone {
			return past()
		}
		lasts := w.config.Policy.Deadline // its time stood still
		a.ends, command.Deadline = time.Now().Add(lasts), w.config.Now().Add(lasts)
	}
}

// past is the result of an attempt that the log has gone on without, as its commit finds out.
func past() (apply.Result, bool) { return apply.Result{Failed: apply.Silence(false, nil)}, true }

// consoleAway waits for a pause because the console of a is away for a reason, and answers the clients
// that have waited for too long.
func (w *Worker) consoleAway(ctx context.Context, a *application, why string, pause time.Duration) {
	w.sighted(ctx, a, true, false)
	w.waits(a, why, pause)
	since := w.config.Absent.Since(a.town)
	if time.Since(a.taken) >= w.config.AbsentWait && !since.IsZero() {
		w.answerHeld(a, &waiting.AbsentError{
			TownID: a.town, Since: since, RunID: a.runID, Accepted: true,
		})
	}
	a.replies.Next(ctx, pause)
}
