package game

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

// console applies a command by RCON, at most once. While the console is away, nothing is sent, and
// the command waits, or its attempt fails, as for an absent plugin. console fails as attempt does.
func (w *Worker) console(
	ctx context.Context, a *Application, command *apply.Command,
) (apply.Result, error) {
	switch {
	case !a.knows.Load():
		return apply.InDoubt("The engine ended while the command was on its way to the console."),
			nil
	case w.config.RCON == nil:
		return apply.Result{Failed: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}}, nil
	}
	pauses := backoff.Backoff{Min: pollPause, Max: w.config.Policy.Resend, Draw: w.steps.Log.Draw}
	for said := ""; ; {
		if _, err := w.waitUnpaused(ctx, a); err != nil {
			return apply.Result{}, err
		}
		// Until the login, nothing is sent, and an operator can cancel the run.
		asked, cancelling := false, false
		bounded, cancel := context.WithCancelCause(ctx)
		deadline := w.config.Policy.Deadline
		ends := time.AfterFunc(deadline, func() { cancel(context.DeadlineExceeded) })
		answer, err := w.config.RCON.Apply(bounded, command, func() bool {
			asked = w.steps.Serves() && a.pass()
			cancelling = !asked
			ends.Reset(deadline) // the console may have been busy with other towns until now
			return asked
		})
		ends.Stop()
		cancel(nil)
		switch {
		case cancelling && !w.steps.Serves():
			return apply.Result{}, errNotLeased
		case cancelling:
			continue
		case !apply.NotApplied(err):
			if a.learn(apply.MayHaveArrived); asked { // it may be refused without a login
				w.present(ctx, a)
			}
			return apply.ConsoleResult(answer, err), nil
		}
		if a.learn(apply.NotArrived); ctx.Err() != nil {
			return apply.Result{}, ctx.Err()
		}
		if text := wire.Sentence(err); text != said {
			said = text
			w.config.Logger.Warn("the console is away: a command waits for it, or its attempt fails",
				"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", err)
		}
		pause, fails := pauses.Next(), w.config.Policy.Absent == apply.AbsentFail
		w.absent(ctx, a, said, pause, fails)
		if fails {
			return apply.ConsoleResult(answer, err), nil
		}
		a.next(ctx, pause)
	}
}
