package game

import (
	"context"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/phrase"
)

// consoleAsker asks a console, which has one request at a time.
type consoleAsker struct {
	x        *Execution
	command  *apply.Command
	inFlight bool // a request is in hand
	cancel   context.CancelFunc
	retries  backoff.Backoff // while the console is absent
	trouble  string          // the last one, as a sentence
}

// consoleReply is the end of a request to a console: of the login, with a session or a refusal, or of
// the command. keep reports whether the session may be used; otherwise it is closed.
type consoleReply struct {
	session apply.Session
	keep    func() bool
	answer  apply.GameAnswer
	sent    bool // the command may have been sent
	err     error
}

func newConsoleAsker(x *Execution) asker {
	d := x.dispatcher
	return &consoleAsker{x: x, retries: backoff.Backoff{
		Min: retryInterval, Max: d.config.Retry.MaxLoginInterval(), Jitter: d.stepper.Log.Jitter,
	}}
}

func (c *consoleAsker) start(command *apply.Command, _ time.Time) {
	c.command, c.trouble = command, ""
	c.retries.Reset()
}

// progress counts a request of an earlier attempt, too: it may still be answered.
func (c *consoleAsker) progress() (sent request, mayBeWorking bool) {
	if c.inFlight {
		return inFlight, false
	}
	return unsent, false
}

func (*consoleAsker) handleSilence(context.Context) {} // there is none: each request ends with a reply

func (*consoleAsker) prolong(time.Duration) {} // each request has the whole deadline

// close ends the request in hand, if there is one.
func (c *consoleAsker) close() {
	if c.cancel != nil {
		c.cancel()
	}
}

// ask logs in to the console, at which the command is applied at most once. Until the login
// nothing is sent, and an operator can cancel the run.
func (c *consoleAsker) ask() {
	x := c.x
	switch console := x.dispatcher.config.RCON; {
	case x.reach == apply.MayHaveReached:
		x.finishAttempt(x.binding.FailInDoubt(
			"The engine ended while the command was on its way to the console."))
	case console == nil:
		x.finishAttempt(apply.AttemptResult{Failure: &apply.Failure{
			Reason: apply.ReasonGameUnavailable, Message: "No console is configured.",
		}})
	default:
		command := c.command
		c.call(func(ctx context.Context) (r consoleReply) {
			var refused *apply.GameAnswer
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

// call makes a request to the console, for at most Retry.Deadline. Its end comes as a reply.
func (c *consoleAsker) call(make func(ctx context.Context) consoleReply) {
	d := c.x.dispatcher
	c.close()
	var ctx context.Context
	ctx, c.cancel = context.WithTimeout(d.ctx, d.config.Retry.Deadline)
	c.inFlight = true
	d.consoles.Go(func() {
		r := make(ctx)
		c.x.Deliver(Reply{console: &r})
	})
}

// handleReply sends the command after the login, or handles its end.
func (c *consoleAsker) handleReply(ctx context.Context, reply Reply) {
	x, d, r := c.x, c.x.dispatcher, reply.console
	if c.inFlight = false; r.session != nil {
		switch {
		case !r.keep(): // the time is over, or the dispatcher has stopped
			r.err = apply.ErrUnavailable
		case x.cancels.unconfirmed, !d.stepper.HasLease(): // next decides again
			r.session.Close()
			return
		default:
			x.noteSent()
			c.call(func(ctx context.Context) consoleReply {
				answer, err := r.session.Send(ctx)
				return consoleReply{answer: answer, sent: true, err: err}
			})
			return
		}
	}
	c.close()
	if !apply.NotApplied(r.err) {
		if x.noteReach(apply.MayHaveReached); r.sent { // it may be refused without a login
			x.noteGamePresent(ctx)
		}
		x.finishAttempt(apply.ConsoleResult(r.answer, r.err))
		return
	}
	if x.noteReach(apply.Unreached); d.ctx.Err() != nil {
		return
	}
	trouble := phrase.Sentence(r.err)
	if trouble != c.trouble {
		c.trouble = trouble
		d.config.Logger.Warn("the console is away: a command waits for it, or its attempt fails",
			"town", x.TownID, "run", x.RunID, x.Trace.LogAttr(), "error", r.err)
	}
	next, fails := c.retries.Next(), d.config.Retry.Absence == apply.AbsenceFail
	x.noteGameAbsent(ctx, trouble, next, fails)
	if x.due = time.Now().Add(next); fails {
		x.finishAttempt(apply.ConsoleResult(r.answer, r.err))
	}
}
