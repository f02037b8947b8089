package game

import (
	"context"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// attempt makes one logical attempt. It returns false if ctx ended it.
func (w *Worker) attempt(ctx context.Context, a *Application) (apply.Result, bool) {
	pause, lasts := w.spans(a)
	held, gone := a.stood, false
	a.stood = 0
	_ = backoff.Sleep(ctx, pause)
	switch {
	case a.Pending.Attempt > 1 || w.config.WorldPause.Known().By != nil && a.own:
		var waited time.Duration
		waited, gone = w.waitUnpaused(ctx, a)
		held += waited
	case held > 0:
		gone = w.superseded(ctx, a)
	}
	if ctx.Err() != nil {
		return apply.Result{}, false
	}
	if gone { // by another writer, during the pause
		// commitOutcome finds it superseded
		return apply.Result{Failed: apply.Silence(false, nil)}, true
	}
	a.ends = time.Now().Add(lasts)
	if a.Pending.Attempt > 1 {
		w.record(ctx, a, true)
		failpoint.At(failpoint.Recorded)
	}
	command := apply.NewCommand(a.Handoff, a.Pending.Run.RunID, a.before, a.Expected)
	command.LogicalAttemptID, command.Deadline = a.Pending.Attempt, a.Pending.Deadline.Add(held)
	least := max(w.config.Policy.Resend, w.config.Policy.Patience())
	if again := time.Now().Add(least); !a.own && a.ends.Before(again) {
		// No server asked between the end of the one before and the start of this one. The game is
		// asked at least once, with time left: a plugin may have applied the command before.
		a.ends, command.Deadline = again, w.steps.Now().Add(least)
	}
	var ended apply.Result
	var ok bool
	begun := time.Now()
	if a.Pending.Via == apply.RCON {
		ended, ok = w.console(ctx, a, command)
	} else {
		ended, ok = w.ask(ctx, a, command)
	}
	if ok && w.config.Metrics != nil {
		w.config.Metrics.Attempt(a.Pending.Via, ended, time.Since(begun))
	}
	return ended, ok
}

// ask asks the plugin until it gives a definite answer or the attempt's deadline passes. It returns
// false if ctx ended it.
func (w *Worker) ask(
	ctx context.Context, a *Application, command *apply.Command,
) (apply.Result, bool) {
	attempt := &PluginAttempt{
		ApplyID: command.ApplyID, Number: command.LogicalAttemptID, Until: a.ends,
		Resend: w.config.Policy.Resend, Patience: w.config.Policy.Patience(),
		Earlier: a.Pending.Reached,
	}
	action := attempt.Due(time.Now())
	for action.Over == nil {
		switch {
		case action.Again && attempt.InHand() && w.superseded(ctx, a):
			action = attempt.GiveUp()
		case action.Again && !attempt.InHand() || action.Send && !a.pass():
			held, gone := w.waitUnpaused(ctx, a)
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			if gone {
				action = attempt.GiveUp()
				continue
			}
			attempt.Until, a.ends = attempt.Until.Add(held), a.ends.Add(held)
			command.Deadline = command.Deadline.Add(held)
			if a.pass() {
				action = w.send(a, attempt, command)
			}
		case action.Send:
			action = w.send(a, attempt, command)
		default:
			r := w.nextReply(ctx, a, attempt, action.Wait)
			if ctx.Err() != nil {
				return apply.Result{}, false
			}
			until := attempt.Until
			action = w.replied(ctx, a, attempt, action, r)
			if attempt.Until != until { // its time stood still
				a.ends, command.Deadline = attempt.Until,
					w.steps.Now().Add(time.Until(attempt.Until))
			}
		}
	}
	a.away.Store(nil)
	a.learn(attempt.Arrival(true))
	return *action.Over, true
}

// send sends an attempt's request once, and returns its next action. A silent plugin that takes a
// request is present.
func (w *Worker) send(
	a *Application, attempt *PluginAttempt, command *apply.Command,
) Action {
	action := attempt.Sent(time.Now(), w.sendRequest(a, command))
	w.noteWait(a, attempt)
	return action
}

// nextReply waits for a reply, at most until the given time. After Config.AbsentWait it tells a's
// clients that the plugin is away: the command goes on waiting without them.
func (w *Worker) nextReply(
	ctx context.Context, a *Application, attempt *PluginAttempt, until time.Time,
) Reply {
	if patient := a.taken.Add(w.config.AbsentWait); attempt.Waits() && patient.Before(until) {
		r := a.next(ctx, time.Until(patient))
		if r != (Reply{}) || ctx.Err() != nil {
			return r
		}
		if since := w.Absences.Since(a.TownID); !since.IsZero() {
			a.answer(false, machine.Answer{}, Absent(a.TownID, apply.Plugin, since, a.RunID, ""))
		}
	}
	return a.next(ctx, time.Until(until))
}

// replied handles a reply to an attempt's request, or the lack of one, and returns the next action.
func (w *Worker) replied(
	ctx context.Context, a *Application, attempt *PluginAttempt, action Action,
	r Reply,
) Action {
	switch {
	case r.Look:
		if w.superseded(ctx, a) {
			action = attempt.GiveUp()
		}
		return action
	case r.Msg == nil:
		action = attempt.TimedOut(time.Now())
	default:
		action = attempt.Replied(time.Now(), r.Msg, r.Attempt)
	}
	a.learn(attempt.Arrival(false))
	if absent, known := attempt.Sighting(r.Msg); known {
		w.sighted(ctx, a, absent, action.Over != nil)
	}
	w.noteWait(a, attempt)
	if r.Msg != nil && action.Over != nil {
		failpoint.At(failpoint.Answered)
	}
	return action
}

// waitUnpaused waits while a's town, or the world, is paused, or an operator cancels a's run, and
// returns how long. Meanwhile nothing new is sent to a plugin or a console, and the deadline stands
// still. It also waits while the log cannot be read, since there may be a pause. gone says that a
// is superseded. Config.PauseWait bounds the wait of a's clients, who then get the pause as their
// answer.
func (w *Worker) waitUnpaused(
	ctx context.Context, a *Application,
) (waited time.Duration, gone bool) {
	from := time.Now()
	for ctx.Err() == nil {
		unsettled := a.unsettled.Load()
		current, err := w.steps.Log.Load(ctx, a.TownID)
		by := w.config.WorldPause.Of(current)
		switch {
		case err != nil:
			if ctx.Err() == nil && w.unread.Ready() {
				w.config.Logger.Warn(
					"a command waits: its town cannot be read, so it is not known "+
						"whether it is paused; will try again",
					"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", err)
			}
		case w.supersededBy(current, a):
			return waited, true
		case unsettled > 0:
			w.settle(ctx, a, current, unsettled)
		case by == nil && a.isOpen():
			if waited > 0 {
				w.Hold(ctx, a.TownID, current.Pending)
			}
			return waited, false
		case by == nil:
		case waited >= w.config.PauseWait:
			a.answer(false, machine.Answer{}, Paused(a.TownID, current.Paused == nil, by, a.RunID, true))
		}
		_ = backoff.Sleep(ctx, pollPause)
		waited = time.Since(from)
	}
	return waited, false
}

// sendRequest sends the request of an attempt once.
func (w *Worker) sendRequest(a *Application, command *apply.Command) error {
	data, err := command.MarshalWire(command.Deadline.Add(-time.Until(a.ends)))
	if err == nil {
		subject := wire.ApplySubject(w.steps.Log.World, wire.TownToken(a.TownID))
		err = w.config.Router.Ask(subject, a, a.Pending.Attempt, data)
	}
	failpoint.At(failpoint.Asked)
	return err
}

// superseded reports whether the log has gone on without a: an operator has ended its run, or a
// later writer has concluded it or begun its next attempt.
func (w *Worker) superseded(ctx context.Context, a *Application) bool {
	current, err := w.steps.Log.Load(ctx, a.TownID)
	return err == nil && w.supersededBy(current, a)
}

func (w *Worker) supersededBy(current commitlog.Entry, a *Application) bool {
	gone := current.Pending == nil || current.Pending.Run.RunID != a.RunID ||
		current.Pending.Attempt != a.Pending.Attempt
	if gone {
		w.config.Towns.Forget(a.TownID)
	}
	return gone
}
