package game

import (
	"context"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/phrase"
)

// consoleWait is how an execution waits for a console, of which it makes one request at a time.
type consoleWait struct {
	inFlight bool // a request is in hand
	cancel   context.CancelFunc
	retries  backoff.Backoff // while the console is away
	said     string          // the last trouble
}

// end ends the request in hand, if there is one.
func (w *consoleWait) end() {
	if w.cancel != nil {
		w.cancel()
	}
}

// consoleReply is the end of a request to a console: of the login, with a session or a refusal, or of
// the command. keep reports whether the session may be used; otherwise it is closed.
type consoleReply struct {
	session apply.Session
	keep    func() bool
	answer  apply.Answer
	sent    bool // the command may have been sent
	err     error
}

// askConsole logs in to the console, at which the command is applied at most once. Until the login
// nothing is sent, and an operator can cancel the run.
func (x *Execution) askConsole() {
	switch console := x.dispatcher.config.RCON; {
	case x.reach == apply.MayBeReached:
		x.finishAttempt(apply.ConsoleInDoubt(
			"The engine ended while the command was on its way to the console."))
	case console == nil:
		x.finishAttempt(apply.AttemptResult{Failure: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}})
	default:
		command := x.attempt.command
		x.callConsole(func(ctx context.Context) (r consoleReply) {
			var refused *apply.Answer
			if r.session, refused, r.err = console.Login(ctx, command); refused != nil {
				r.answer = *refused
			}
			if r.session != nil {
				r.keep = context.AfterFunc(ctx, r.session.Close)
			}
			return r
		})
	}
}

// callConsole makes a request to the console, for at most Retry.Deadline. Its end comes as a reply.
func (x *Execution) callConsole(make func(ctx context.Context) consoleReply) {
	d := x.dispatcher
	x.console.end()
	var ctx context.Context
	ctx, x.console.cancel = context.WithTimeout(d.ctx, d.config.Retry.Deadline)
	x.console.inFlight = true
	d.consoles.Go(func() {
		r := make(ctx)
		x.Deliver(Reply{console: &r})
	})
}

// consoleReplied sends the command after the login, or handles its end.
func (x *Execution) consoleReplied(ctx context.Context, r *consoleReply) {
	d := x.dispatcher
	if x.console.inFlight = false; r.session != nil {
		switch {
		case !r.keep(): // the time is over, or the dispatcher has stopped
			r.err = apply.ErrUnavailable
		case !d.stepper.IsWriter():
			r.session.Close()
			x.abandon(ctx)
			return
		case x.cancels.unconfirmed:
			r.session.Close()
			return
		default:
			x.noteSent()
			x.callConsole(func(ctx context.Context) consoleReply {
				answer, err := r.session.Send(ctx)
				return consoleReply{answer: answer, sent: true, err: err}
			})
			return
		}
	}
	x.console.end()
	if !apply.NotApplied(r.err) {
		if x.noteReach(apply.MayBeReached); r.sent { // it may be refused without a login
			x.noteGamePresent(ctx)
		}
		x.finishAttempt(apply.ConsoleResult(r.answer, r.err))
		return
	}
	if x.noteReach(apply.Unreached); d.ctx.Err() != nil {
		return
	}
	said := phrase.Sentence(r.err)
	if said != x.console.said {
		x.console.said = said
		d.config.Logger.Warn("the console is away: a command waits for it, or its attempt fails",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", r.err)
	}
	next, fails := x.console.retries.Next(), d.config.Retry.Absence == apply.AbsenceFail
	x.noteGameAbsent(ctx, said, next, fails)
	if x.due = time.Now().Add(next); fails {
		x.finishAttempt(apply.ConsoleResult(r.answer, r.err))
	}
}
