package worldengine

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/wire"
)

// attempt makes one logical attempt. It says false when ctx ended it.
func (e *Engine) attempt(ctx context.Context, a *application) (apply.Result, bool) {
	pause, lasts := e.spans(a)
	held, gone := a.stood, false
	a.stood = 0
	_ = backoff.Sleep(ctx, pause)
	switch {
	case a.Pending.Attempt > 1 || e.worldPause.Known().By != nil && a.own:
		var waited time.Duration
		waited, gone = e.waitUnpaused(ctx, a)
		held += waited
	case held > 0:
		gone = e.superseded(ctx, a)
	}
	if gone { // by another instance, during the pause
		// which commitOutcome finds to be of the past
		return apply.Result{Failed: apply.Silence(false, nil)}, true
	}
	a.ends = time.Now().Add(lasts)
	if a.Pending.Attempt > 1 {
		e.recordAttempts(ctx, a, true)
		failpoint.At(failpoint.Recorded)
	}
	command := apply.NewCommand(a.Handoff, a.Pending.Run.RunID, a.before, a.Expected)
	command.LogicalAttemptID, command.Deadline = a.Pending.Attempt, a.Pending.Deadline.Add(held)
	begun, applyBy := time.Now(), e.ask
	if a.Pending.Via == apply.RCON {
		applyBy = e.console
	}
	ended, ok := applyBy(ctx, a, command)
	if ok && e.config.OnAttempt != nil {
		e.config.OnAttempt(a.Pending.Via, ended, time.Since(begun))
	}
	return ended, ok
}

// console has a command applied by RCON: at most once.
func (e *Engine) console(
	ctx context.Context, a *application, command *apply.Command,
) (apply.Result, bool) {
	if !a.own {
		return apply.InDoubt("The engine ended while the command was on its way to the console."),
			true
	}
	if e.config.RCON == nil {
		return apply.Result{Failed: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}}, true
	}
	if a.Pending.Attempt > 1 && e.superseded(ctx, a) {
		// which commitOutcome finds to be of the past
		return apply.Result{Failed: apply.Silence(false, nil)}, true
	}
	for !a.gate.Pass() { // an operator wishes to cancel the run
		held, gone := e.waitUnpaused(ctx, a)
		if ctx.Err() != nil {
			return apply.Result{}, false
		}
		if gone {
			return apply.Result{Failed: apply.Silence(false, nil)}, true
		}
		a.ends, command.Deadline = a.ends.Add(held), command.Deadline.Add(held)
	}
	bounded, cancel := context.WithDeadline(ctx, a.ends)
	defer cancel()
	answer, err := e.config.RCON.Apply(bounded, command)
	if !apply.NotApplied(err) {
		a.gate.Reached()
	} else if a.gate.Missed(); ctx.Err() != nil {
		return apply.Result{}, false
	}
	return apply.ConsoleResult(answer, err), true
}

// ask asks the plugin until it gives a definite answer or the attempt's deadline passes. It returns
// false when ctx ended it.
func (e *Engine) ask(
	ctx context.Context, a *application, command *apply.Command,
) (apply.Result, bool) {
	attempt := &apply.PluginAttempt{
		ApplyID: command.ApplyID, Number: command.LogicalAttemptID, Until: a.ends,
		Resend: e.config.Plugin.Resend, Patience: e.config.Plugin.Patience(),
		Earlier: a.Pending.Reached || !a.own,
	}
	if again := time.Now().Add(attempt.Resend); !a.own && attempt.Until.Before(again) {
		attempt.Until = again // the plugin may have applied it in time: it is asked once at least
	}
	action := attempt.Due(time.Now())
	for action.Over == nil {
		switch {
		case action.Again && attempt.InHand() && e.superseded(ctx, a):
			action = attempt.GiveUp()
		case action.Again && !attempt.InHand() || action.Send && !a.gate.Pass():
			held, gone := e.waitUnpaused(ctx, a)
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			if gone {
				action = attempt.GiveUp()
				continue
			}
			attempt.Until, a.ends = attempt.Until.Add(held), a.ends.Add(held)
			command.Deadline = command.Deadline.Add(held)
			if a.gate.Pass() {
				action = attempt.Sent(time.Now(), e.sendRequest(a, command))
			}
		case action.Send:
			action = attempt.Sent(time.Now(), e.sendRequest(a, command))
		default:
			r := a.replies.Next(ctx, time.Until(action.Wait))
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			until := attempt.Until
			action = e.replied(ctx, a, attempt, action, r)
			if attempt.Until != until { // its time stood still
				a.ends, command.Deadline = attempt.Until,
					e.config.Now().Add(time.Until(attempt.Until))
			}
		}
	}
	attempt.Leave(&a.gate)
	return *action.Over, true
}

// replied takes in a reply to a request of an attempt, or that none came in time, and returns what
// the attempt does next.
func (e *Engine) replied(
	ctx context.Context, a *application, attempt *apply.PluginAttempt, action apply.Action,
	r apply.Reply,
) apply.Action {
	switch {
	case r.Look:
		if e.superseded(ctx, a) {
			action = attempt.GiveUp()
		}
		return action
	case r.Msg == nil:
		action = attempt.TimedOut(time.Now())
	default:
		action = attempt.Replied(time.Now(), r.Msg, r.Attempt)
	}
	attempt.Tell(&a.gate)
	if r.Msg != nil || attempt.Absent() { // silence says nothing: the connection may be down
		e.sighted(ctx, a, attempt.Absent(), action.Over != nil)
	}
	if r.Msg != nil && action.Over != nil {
		failpoint.At(failpoint.Answered)
	}
	return action
}

// waitUnpaused waits while the town of a, or the world, is paused, or an operator wishes to cancel
// the run of a, and returns how long: meanwhile the engine sends a plugin or a console nothing that
// it does not have in hand, and the deadline of what waits stands still. While the log cannot be
// read the engine does not know whether there is a pause, and waits. gone says that a is
// superseded. The engine tells clients that wait for a of a pause after Config.PauseWait.
func (e *Engine) waitUnpaused(
	ctx context.Context, a *application,
) (waited time.Duration, gone bool) {
	from := time.Now()
	for ctx.Err() == nil {
		closings := a.gate.Closings()
		current, err := e.log.Load(ctx, a.town)
		by := e.pauseOf(current)
		switch {
		case err != nil:
			if ctx.Err() == nil && e.unread.Ready() {
				e.config.Logger.Warn(
					"a command waits: its town cannot be read, so it is not known "+
						"whether it is paused; will try again",
					"town", a.town, "run", a.runID, a.replies.Trace.LogAttr(), "error", err)
			}
		case e.supersededBy(current, a):
			return waited, true
		case by == nil && e.mayAsk(ctx, a, current, closings):
			if waited > 0 {
				e.holdRun(ctx, a.town, current)
			}
			return waited, false
		case by == nil:
		case current.Pending.Wish != nil:
			e.mayAsk(ctx, a, current, closings)
		case waited >= e.config.PauseWait:
			e.tellHeld(a, &PausedError{
				TownID: a.town, World: current.Paused == nil, By: by, RunID: a.runID,
				Accepted: true,
			})
		}
		_ = backoff.Sleep(ctx, pollPause)
		waited = time.Since(from)
	}
	return waited, false
}

// tellHeld tells the clients that wait for a why they wait for longer than they are to.
func (e *Engine) tellHeld(a *application, why *PausedError) {
	for _, done := range e.applications.TakeWaiting(a) {
		done(Answer{}, why)
	}
}

// sendRequest sends the request of an attempt once.
func (e *Engine) sendRequest(a *application, command *apply.Command) error {
	data, err := command.MarshalWire(command.Deadline.Add(-time.Until(a.ends)))
	if err == nil {
		subject := wire.ApplySubject(e.config.World, wire.TownToken(a.town))
		err = e.plugins.Ask(subject, a.replies, a.Pending.Attempt, data)
	}
	failpoint.At(failpoint.Asked)
	return err
}

// superseded reports whether the log says that another instance has gone on with the application of
// a: concluded it, or begun its next attempt. Otherwise it answers an operator who wishes to cancel
// the run.
func (e *Engine) superseded(ctx context.Context, a *application) bool {
	current, err := e.log.Load(ctx, a.town)
	if err != nil || e.supersededBy(current, a) {
		return err == nil
	}
	e.sayArrival(ctx, a, current)
	return false
}

func (e *Engine) supersededBy(current commitlog.Entry, a *application) bool {
	gone := current.Pending == nil || current.Pending.Run.RunID != a.runID ||
		current.Pending.Attempt != a.Pending.Attempt
	if gone {
		e.towns.Forget(a.town)
	}
	return gone
}
