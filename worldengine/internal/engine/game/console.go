package game

import (
	"cmp"
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/wire"
)

// console applies a command by RCON, at most once. While the console is away, nothing is sent, and
// the command waits, or its attempt fails, as for an absent plugin. console fails as attempt does.
func (w *Worker) console(
	ctx context.Context, a *Application, command *apply.Command,
) (apply.Result, error) {
	switch {
	case !a.knows:
		return apply.ConsoleInDoubt("The engine ended while the command was on its way to the console."),
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
		asked, answer, err := w.askConsole(ctx, a, command)
		switch {
		case errors.Is(err, errCancelled), errors.Is(err, errNotLeased):
			return apply.Result{}, err
		case errors.Is(err, errUnconfirmed):
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
		if err = w.decideNoted(ctx, a); err == nil {
			err = w.pause(ctx, a, pause)
		}
		if err != nil {
			return apply.Result{}, err
		}
	}
}

// errUnconfirmed: nothing was sent to a console, since a cancellation may be stored.
var errUnconfirmed = errors.New("game: a cancellation is not confirmed")

// askConsole has the console apply a command. asked reports whether the command may have been sent.
// Until the login nothing is sent, and an operator can cancel the run.
func (w *Worker) askConsole(
	ctx context.Context, a *Application, command *apply.Command,
) (asked bool, answer apply.Answer, err error) {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := w.config.Policy.Deadline
	ends := time.AfterFunc(deadline, func() { cancel(context.DeadlineExceeded) })
	defer ends.Stop()
	w.work.Go(func() {
		answer, err := w.config.RCON.Apply(bounded, command, func() bool {
			may := make(chan bool, 1)
			a.replies <- Reply{mayAsk: may}
			select {
			case asks := <-may:
				return asks
			case <-bounded.Done():
				return false
			}
		})
		a.replies <- Reply{console: &consoleReply{answer, err}}
	})
	var refused error
	for {
		// The console's end comes soon after ctx's, and decides whether the command is in doubt.
		r, err := w.next(context.WithoutCancel(ctx), a, time.Hour, a.replies)
		switch {
		case err != nil:
			return asked, answer, err
		case r.mayAsk != nil:
			switch {
			case !w.steps.Serves():
				refused = errNotLeased
			case a.unconfirmed:
				refused = errUnconfirmed
			default:
				asked = true
				a.sends()
				ends.Reset(deadline) // the console may have been busy with other towns until now
			}
			r.mayAsk <- asked
		case r.console != nil:
			return asked, r.console.answer, cmp.Or(refused, r.console.err)
		}
	}
}
