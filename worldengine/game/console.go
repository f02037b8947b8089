package game

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// console has a command applied by RCON: at most once. While the console is away nothing is sent, and
// the command waits for it as for a plugin.
func (w *Worker) console(
	ctx context.Context, a *Application, command *apply.Command,
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
	pauses := backoff.Backoff{Min: pollPause, Max: w.config.Policy.Resend, Draw: w.steps.Log.Draw}
	for said := ""; ; {
		answer, passed, err := w.askConsole(ctx, a, command)
		if !passed && err == nil { // an operator cancels the run
			held, gone := w.waitUnpaused(ctx, a)
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			if gone {
				return past()
			}
			a.ends, command.Deadline = a.ends.Add(held), command.Deadline.Add(held)
			continue
		}
		if !apply.NotApplied(err) {
			a.learn(apply.MayHaveArrived)
			a.away.Store(nil)
			w.sighted(ctx, a, false, true)
			return apply.ConsoleResult(answer, err), true
		}
		if a.learn(apply.NotArrived); ctx.Err() != nil {
			return apply.Result{}, false
		}
		if w.config.Policy.Absent != apply.AbsentWait {
			return apply.ConsoleResult(answer, err), true
		}
		if text := wire.Sentence(err); text != said {
			said = text
			w.config.Logger.Warn("the console is away, and a command waits for it; will try again",
				"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", err)
		}
		w.consoleAway(ctx, a, said, pauses.Next())
		if _, gone := w.waitUnpaused(ctx, a); gone {
			return past()
		}
		lasts := w.config.Policy.Deadline // its time stood still
		a.ends, command.Deadline = time.Now().Add(lasts), w.steps.Now().Add(lasts)
	}
}

// askConsole has the console apply a command before the attempt ends. Nothing of it is sent before
// the log-in, so that an operator can cancel the run until then: passed is false without an error if
// the run is being cancelled.
func (w *Worker) askConsole(
	ctx context.Context, a *Application, command *apply.Command,
) (answer apply.Answer, passed bool, err error) {
	if !a.isOpen() {
		return answer, false, nil
	}
	ctx, cancel := context.WithDeadline(ctx, a.ends)
	defer cancel()
	session, err := w.config.RCON.Begin(ctx, command)
	if err != nil {
		return answer, false, err
	}
	defer session.End()
	if !a.pass() {
		return answer, false, nil
	}
	answer, err = session.Apply(ctx)
	return answer, true, err
}

// past is the result of an attempt that the log has gone on without, as its commit finds out.
func past() (apply.Result, bool) { return apply.Result{Failed: apply.Silence(false, nil)}, true }

// consoleAway waits for a pause because the console of a is away for a reason, and answers the clients
// that have waited for too long.
func (w *Worker) consoleAway(ctx context.Context, a *Application, why string, pause time.Duration) {
	w.sighted(ctx, a, true, false)
	w.waits(a, why, pause)
	since := w.Absences.Since(a.TownID)
	if time.Since(a.taken) >= w.config.AbsentWait && !since.IsZero() {
		a.answer(false, machine.Answer{}, Absent(a.TownID, apply.RCON, since, a.RunID, ""))
	}
	a.next(ctx, pause)
}
