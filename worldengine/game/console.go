package game

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

// console applies a command by RCON, at most once. While the console is away, nothing is sent, and
// the command waits as it does for an absent plugin. console fails as attempt does.
func (w *Worker) console(
	ctx context.Context, a *Application, command *apply.Command, ends time.Time,
) (apply.Result, error) {
	switch {
	case !a.knows.Load():
		return apply.InDoubt("The engine ended while the command was on its way to the console."),
			nil
	case w.config.RCON == nil:
		return apply.Result{Failed: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}}, nil
	case w.superseded(ctx, a):
		return apply.Result{}, errSuperseded
	}
	pauses := backoff.Backoff{Min: pollPause, Max: w.config.Policy.Resend, Draw: w.steps.Log.Draw}
	for said := ""; ; {
		answer, cancelling, err := w.askConsole(ctx, a, command, ends)
		if cancelling {
			held, err := w.waitUnpaused(ctx, a)
			if err != nil {
				return apply.Result{}, err
			}
			ends = ends.Add(held)
			continue
		}
		if !apply.NotApplied(err) {
			a.learn(apply.MayHaveArrived)
			w.present(ctx, a)
			return apply.ConsoleResult(answer, err), nil
		}
		if a.learn(apply.NotArrived); ctx.Err() != nil {
			return apply.Result{}, ctx.Err()
		}
		if w.config.Policy.Absent != apply.AbsentWait {
			return apply.ConsoleResult(answer, err), nil
		}
		if text := wire.Sentence(err); text != said {
			said = text
			w.config.Logger.Warn("the console is away, and a command waits for it; will try again",
				"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", err)
		}
		pause := pauses.Next()
		w.absent(ctx, a, said, pause, false)
		if time.Since(a.taken) >= w.config.AbsentWait {
			w.answerAbsent(a)
		}
		a.next(ctx, pause)
		if _, err := w.waitUnpaused(ctx, a); err != nil {
			return apply.Result{}, err
		}
		ends = time.Now().Add(w.config.Policy.Deadline) // the wait is no part of the attempt
	}
}

// askConsole sends a command to the console before the attempt ends. Until the login, nothing is
// sent, and an operator can cancel the run; cancelling reports that an operator is doing so.
func (w *Worker) askConsole(
	ctx context.Context, a *Application, command *apply.Command, ends time.Time,
) (answer apply.Answer, cancelling bool, err error) {
	if !a.isOpen() {
		return answer, true, nil
	}
	ctx, cancel := context.WithDeadline(ctx, ends)
	defer cancel()
	answer, err = w.config.RCON.Apply(ctx, command, func() bool {
		cancelling = !a.pass()
		return !cancelling
	})
	return answer, cancelling, err
}
