package worldengine

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// answering answers a client.
type answering = func(Answer, error)

// application is a pending handoff that this instance works on: it asks the plugin or the console to
// apply the command, and commits the outcome. Its goroutine owns what is not the member's.
type application struct {
	apply.Member[answering]
	apply.Decoded
	town    string
	runID   string
	before  town.State
	replies *apply.Mailbox
	// own says that this instance committed the pending handoff; another one's is left to it for a
	// while.
	own bool
	// begun is the last attempt that this instance has committed, and ends when the present one ends, by
	// the machine's monotonic clock.
	begun int64
	ends  time.Time
	// stood is how long the deadline of the present attempt stood still in a pause, before this instance
	// took over what another one had begun.
	stood time.Duration
	look  look
	// finished says that it has got its answer. It is set in the town's turn.
	finished bool
}

// ensureApplication has this instance work on the pending handoff of a town, unless it does already:
// another request may have found in the log what this instance has only just committed. done is nil but
// for the handoff that this instance has just committed, and gets its answer. It is an error when what
// is stored cannot be read.
func (e *Engine) ensureApplication(
	townID string, current commitlog.Entry, done func(Answer, error),
) error {
	var clients []answering
	if done != nil {
		clients = append(clients, done)
	}
	if e.applications.Join(townID, current.Pending.Run.RunID, clients...) {
		return nil
	}
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	of := apply.Identity{
		TownID: townID, HandoffID: app.Handoff.HandoffID, RunID: app.Pending.Run.RunID,
		Trace: app.Pending.Run.Trace,
	}
	a := &application{
		Member:  apply.NewMember(of, app.Handoff.IdempotencyKey, clients...),
		Decoded: app, town: townID, runID: of.RunID, before: current.State,
		own: done != nil, replies: apply.NewMailbox(of),
	}
	if done != nil {
		a.begun = a.Pending.Attempt
		a.look = look{next: time.Now().Add(e.config.Plugin.Resend), world: e.worldPause.Known().Seq}
	}
	if !e.applications.Add(a, func() { e.runApplication(e.applyContext, a) }) && done != nil {
		done(Answer{}, ErrInProgress)
	}
	return nil
}

// runApplication works on an application until it is concluded, here or elsewhere, or ctx is done.
func (e *Engine) runApplication(ctx context.Context, a *application) {
	defer func() {
		if !a.finished {
			e.release(a, false, Answer{}, ErrInProgress)
			e.queue.Unpark(a.town)
		}
	}()
	if !a.own && !e.adopt(ctx, a) {
		return
	}
	for ctx.Err() == nil {
		attempt := a.Pending.Attempt
		v, ok := e.attempt(ctx, a)
		if !ok {
			return
		}
		v.Attempt, v.At = attempt, e.config.Now()
		if e.commitOutcome(ctx, a, v) {
			return
		}
	}
}

// finish ends an application that has got its answer, in the town's turn: whatever comes next for the
// town finds it gone.
func (e *Engine) finish(a *application, v apply.Result, answer Answer) {
	a.finished = true
	gaveUp := answer.Result.Status == handoff.Failed
	e.release(a, gaveUp, answer, nil)
	if gaveUp && v.Applied { // another instance had given up before
		e.alerts.RaiseOnce(e.environment().LateAnswer(a.about()))
	}
}

// release ends an application and answers the clients that wait for it.
func (e *Engine) release(a *application, gaveUp bool, answer Answer, err error) {
	e.plugins.Forget(a.replies, gaveUp)
	for _, done := range e.applications.Remove(a) {
		done(answer, err)
	}
}

// adopt leaves another instance's application to it until that has had its time, and reports whether
// it is this instance's then. In a pause no instance asks: what another instance holds back, or had in hand
// when it died, is not asked for before the end of the pause, and then the other instance is first.
func (e *Engine) adopt(ctx context.Context, a *application) bool {
	until, known := time.Now().Add(e.config.Plugin.Resend), int64(0)
	var since time.Time // of the pause
	for ctx.Err() == nil {
		current, err := e.log.Load(ctx, a.town)
		if err == nil && (current.Pending == nil || current.Pending.Run.RunID != a.runID) {
			e.towns.Forget(a.town)
			return false
		}
		if err == nil {
			a.Pending = current.Pending
		}
		if by := e.pauseOf(current); err == nil && by != nil {
			if since.IsZero() {
				since = by.At
			}
			until, known = time.Now().Add(e.config.Plugin.Resend), 0
		}
		if a.Pending.Via == apply.RCON && a.Pending.Attempt != known {
			// A second console command would be a second application.
			pause, lasts := e.spans(a)
			if !since.IsZero() {
				lasts = a.Pending.Deadline.Sub(a.Pending.NotBefore) // its deadline stood still
			}
			until, known = time.Now().Add(pause+lasts+e.config.Plugin.Resend), a.Pending.Attempt
		}
		if err == nil && time.Now().After(until) {
			e.towns.Forget(a.town)
			if !since.IsZero() {
				now := e.config.Now()
				a.stood = max(min(now.Sub(since), now.Sub(a.Pending.NotBefore)), 0)
			}
			return true
		}
		_ = backoff.Sleep(ctx, min(pollPause, time.Until(until)+time.Millisecond))
	}
	return false
}

// spans returns how long it is until the present attempt of a begins, and how long it lasts then.
func (e *Engine) spans(a *application) (pause, lasts time.Duration) {
	return a.Pending.Spans(&e.config.Plugin, a.begun, e.config.Now().Add(-a.stood))
}

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
		return apply.Result{Failed: apply.Silence(false, nil)}, true // which commitOutcome finds to be of the past
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
func (e *Engine) console(ctx context.Context, a *application, command *apply.Command) (apply.Result, bool) {
	if !a.own {
		return apply.InDoubt("The engine ended while the command was on its way to the console."), true
	}
	if e.config.RCON == nil {
		return apply.Result{Failed: &apply.Failure{
			Reason: apply.ReasonPluginUnavailable, Message: "No console is configured.",
		}}, true
	}
	if a.Pending.Attempt > 1 && e.superseded(ctx, a) {
		return apply.Result{Failed: apply.Silence(false, nil)}, true // which commitOutcome finds to be of the past
	}
	bounded, cancel := context.WithDeadline(ctx, a.ends)
	defer cancel()
	answer, err := e.config.RCON.Apply(bounded, command)
	if ctx.Err() != nil && apply.NotApplied(err) {
		return apply.Result{}, false
	}
	return apply.ConsoleResult(answer, err), true
}

// ask asks the plugin until it gives a definite answer or the attempt's deadline passes. It returns
// false when ctx ended it.
func (e *Engine) ask(ctx context.Context, a *application, command *apply.Command) (apply.Result, bool) {
	attempt := &apply.PluginAttempt{
		ApplyID: command.ApplyID, Number: command.LogicalAttemptID, Until: a.ends,
		Resend: e.config.Plugin.Resend, Patience: e.config.Plugin.Patience(), Reached: a.Pending.Reached || !a.own,
	}
	if again := time.Now().Add(attempt.Resend); !a.own && attempt.Until.Before(again) {
		attempt.Until = again // the plugin may have applied it in time: it is asked once at least
	}
	action := attempt.Due(time.Now())
	for action.Over == nil {
		switch {
		case action.Again && attempt.InHand() && e.superseded(ctx, a):
			action = attempt.GiveUp()
		case action.Again && !attempt.InHand():
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
			action = attempt.Sent(time.Now(), e.sendRequest(a, command))
		case action.Send:
			action = attempt.Sent(time.Now(), e.sendRequest(a, command))
		default:
			r := a.replies.Next(ctx, time.Until(action.Wait))
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			until := attempt.Until
			if r.Msg == nil {
				action = attempt.TimedOut(time.Now())
			} else {
				action = attempt.Replied(time.Now(), r.Msg, r.Attempt)
			}
			if attempt.Until != until { // its time stood still
				a.ends, command.Deadline = attempt.Until, e.config.Now().Add(time.Until(attempt.Until))
			}
			if r.Msg != nil || attempt.Absent() { // silence says nothing: the connection may be down
				e.sighted(ctx, a, attempt.Absent(), action.Over != nil)
			}
			if r.Msg != nil && action.Over != nil {
				failpoint.At(failpoint.Answered)
			}
		}
	}
	return *action.Over, true
}

// waitUnpaused waits while the town of a, or the world, is paused, and returns how long: in a pause the engine
// sends a plugin or a console nothing that it does not have in hand, and the deadline of what waits stands
// still. While the log cannot be read the engine does not know whether there is a pause, and waits. gone says
// that a is superseded. The engine tells clients that wait for a of a pause after Config.PauseWait.
func (e *Engine) waitUnpaused(
	ctx context.Context, a *application,
) (waited time.Duration, gone bool) {
	from := time.Now()
	for ctx.Err() == nil {
		current, err := e.log.Load(ctx, a.town)
		by := e.pauseOf(current)
		switch {
		case err != nil:
			if ctx.Err() == nil && e.unread.Ready() {
				e.config.Logger.Warn("a command waits: its town cannot be read, so it is not known "+
					"whether it is paused; will try again",
					"town", a.town, "run", a.runID, a.replies.Trace.LogAttr(), "error", err)
			}
		case e.supersededBy(current, a):
			return waited, true
		case by == nil:
			if waited > 0 {
				e.holdRun(ctx, a.town, current)
			}
			return waited, false
		case waited >= e.config.PauseWait:
			e.tellHeld(a, &PausedError{
				TownID: a.town, World: current.Paused == nil, By: by, RunID: a.runID, Accepted: true,
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

// superseded reports whether the log says that another instance has gone on with the application of a:
// concluded it, or begun its next attempt.
func (e *Engine) superseded(ctx context.Context, a *application) bool {
	current, err := e.log.Load(ctx, a.town)
	return err == nil && e.supersededBy(current, a)
}

func (e *Engine) supersededBy(current commitlog.Entry, a *application) bool {
	gone := current.Pending == nil || current.Pending.Run.RunID != a.runID ||
		current.Pending.Attempt != a.Pending.Attempt
	if gone {
		e.towns.Forget(a.town)
	}
	return gone
}

// lateAnswer takes an answer to an application that was given up. One that says that the command is
// applied changes nothing: the world and the engine have parted, which an operator has to look at.
func (e *Engine) lateAnswer(l apply.Identity, msg *nats.Msg) {
	if l.Applied(msg) {
		e.alerts.RaiseOnce(e.environment().LateAnswer(alerts.About(l)))
	}
}

// doubleAnswer takes an answer that a command is applied of which there are more than requests.
func (e *Engine) doubleAnswer(of apply.Identity, msg *nats.Msg) {
	if of.Applied(msg) {
		e.alerts.RaiseOnce(e.environment().DoubleAnswer(alerts.About(of)))
	}
}

// alertFailure raises what a failed application asks an operator to look at.
func (e *Engine) alertFailure(a *application, failed *apply.Failure) {
	if failed == nil {
		return
	}
	switch failed.Reason {
	case apply.ReasonRCONInDoubt, apply.ReasonPluginTimeout:
		e.alerts.RaiseOnce(e.environment().InDoubt(a.about()))
	case apply.ReasonPluginStateInvalid:
		e.alerts.RaiseOnce(e.environment().StateInvalid(a.about()))
	}
}

// sighted takes in that a plugin replied to a request, or that NATS found none subscribed, and
// whether the attempt is over.
func (e *Engine) sighted(ctx context.Context, a *application, absent, over bool) {
	if absent {
		e.absent.Absent(ctx, a.about(), 1+len(e.queue.Items(a.town)), over)
	} else {
		e.absent.Present(ctx, a.about())
	}
}

// about returns what the alerts about an application are about.
func (a *application) about() alerts.About { return alerts.About(a.replies.Identity) }
