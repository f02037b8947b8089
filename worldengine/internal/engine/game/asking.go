package game

import (
	"context"
	"errors"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// errSuperseded: the log has gone on without an application. An operator has ended the run, or a
// later writer has concluded the command or begun its next attempt.
var errSuperseded = errors.New("game: the log has gone on with the command")

// errNotLeased: this server does not hold the lease, so the command is left to the next writer.
var errNotLeased = errors.New("game: this server does not hold the lease")

// attempt makes one logical attempt. It lasts for Policy.Deadline from here on, also for a writer
// that takes the command over. The error is errSuperseded, errNotLeased, errCancelled, or ctx's if ctx
// has ended.
func (w *Worker) attempt(ctx context.Context, a *Application) (apply.Result, error) {
	number := a.Pending.Attempt
	if number > 1 {
		// NotBefore may be by another clock, so it does not make the pause longer.
		pause := min(a.Pending.NotBefore.Sub(w.steps.Now()), w.config.Policy.PauseAfter(number-1))
		if err := w.pause(ctx, a, pause); err != nil {
			return apply.Result{}, err
		}
	}
	if number > 1 || w.config.WorldPause.Known().By != nil && a.own {
		if _, err := w.waitUnpaused(ctx, a); err != nil {
			return apply.Result{}, err
		}
	}
	if number > 1 {
		w.record(ctx, a, true)
		failpoint.Hit(failpoint.Recorded)
	}
	command := apply.NewCommand(a.Handoff, a.Pending.Run.RunID, a.before, a.Expected)
	command.LogicalAttemptID = number
	ask, begun := w.ask, time.Now()
	if a.Pending.Via == apply.RCON {
		ask = w.console
	}
	ended, err := ask(ctx, a, command)
	a.away.Store(nil)
	if err == nil && w.config.Metrics != nil {
		w.config.Metrics.Attempt(a.Pending.Via, ended, time.Since(begun))
	}
	return ended, err
}

// ask asks the plugin until it gives a definite answer or the attempt ends. It fails as attempt
// does.
func (w *Worker) ask(
	ctx context.Context, a *Application, command *apply.Command,
) (apply.Result, error) {
	p := &pluginAttempt{
		applyID: command.ApplyID, number: command.LogicalAttemptID,
		ends:   time.Now().Add(w.config.Policy.Deadline),
		resend: w.config.Policy.Resend, patience: w.config.Policy.Patience(),
		earlier: a.Pending.Reached,
	}
	defer func() { a.learn(p.arrival(true)) }()
	next := p.due(time.Now())
	for next.over == nil {
		if !next.send {
			r, err := w.next(ctx, a, time.Until(next.wait), a.replies)
			if err == nil {
				next = w.replied(ctx, a, p, r)
				err = w.decideNoted(ctx, a)
			}
			if err != nil {
				return apply.Result{}, err
			}
			continue
		}
		// A plugin that may be working on the command is asked even in a pause.
		inHand := p.inHand()
		switch {
		case !w.steps.Serves():
			return apply.Result{}, errNotLeased
		case inHand && w.superseded(ctx, a):
			return apply.Result{}, errSuperseded
		}
		if p.sent && !inHand || a.unconfirmed {
			waited, err := w.waitUnpaused(ctx, a)
			if err != nil {
				return apply.Result{}, err
			}
			p.ends = p.ends.Add(waited)
		}
		a.sends()
		next = p.requested(time.Now(), w.sendRequest(a, command, p.ends))
		a.away.Store(nil) // a plugin that has the request and is silent counts as present
	}
	return *next.over, nil
}

func (w *Worker) sendRequest(a *Application, command *apply.Command, ends time.Time) error {
	now := w.steps.Now()
	command.Deadline = now.Add(time.Until(ends))
	data, err := command.MarshalWire(now)
	if err == nil {
		subject := wire.ApplySubject(w.steps.Log.World, wire.TownToken(a.TownID))
		err = w.config.Router.Ask(subject, a, a.Pending.Attempt, data)
	}
	failpoint.Hit(failpoint.Asked)
	return err
}

// replied handles a reply to an attempt's request, or the lack of one.
func (w *Worker) replied(
	ctx context.Context, a *Application, p *pluginAttempt, r Reply,
) (next action) {
	if r.Msg == nil {
		next = p.timedOut(time.Now())
	} else {
		next = p.replied(time.Now(), r.Msg, r.Attempt)
	}
	a.learn(p.arrival(false))
	if next.invalid != nil {
		w.config.Logger.Warn("a plugin's answer is invalid, and counts as silence", "town", a.TownID,
			"run", a.RunID, a.Trace.LogAttr(), "error", next.invalid)
	}
	switch {
	case p.absent:
		said := "No plugin is subscribed for the town."
		if p.last != nil {
			said = wire.Sentence(p.last)
		} else if last := a.Pending.Last; last != nil {
			said = last.Message
		}
		w.absent(ctx, a, said, time.Until(p.next), next.over != nil)
	case r.Msg != nil && !isNoResponders(r.Msg):
		w.present(ctx, a)
	}
	if r.Msg != nil && next.over != nil {
		failpoint.Hit(failpoint.Answered)
	}
	return next
}

// absent records that the last request found no game, and that the game is asked again after the
// pause. With over, the attempt has ended. After a.patient a's client gets Absent as its answer.
func (w *Worker) absent(
	ctx context.Context, a *Application, said string, pause time.Duration, over bool,
) {
	w.Absences.Absent(ctx, a.Subject, 1+w.config.Queue.Waiting(a.TownID), over)
	a.away.Store(&messages.AbsentPlugin{RunID: a.RunID, Attempt: a.Pending.Attempt, Said: said,
		NextAt: runevents.Timestamp(w.steps.Now().Add(pause))})
	w.config.Queue.Wake(a.TownID) // requests that have waited long enough are answered now
	if !a.patient.IsZero() && !time.Now().Before(a.patient) {
		since := w.Absences.Since(a.TownID)
		a.answer(machine.Answer{}, Absent(a.TownID, a.Pending.Via, since, a.RunID, ""))
	}
}

// present records that the last request found a game.
func (w *Worker) present(ctx context.Context, a *Application) {
	a.away.Store(nil)
	w.Absences.Present(ctx, a.Subject)
}

// waitUnpaused waits while a's town or the world is paused, or while the log does not confirm a
// cancellation. It returns the time waited, by which the caller moves the deadline. Meanwhile no
// request is sent. It also waits while the log cannot be read, since there may be a pause. It fails
// as attempt does. After Config.PauseWait a's client gets the pause as its answer.
func (w *Worker) waitUnpaused(
	ctx context.Context, a *Application,
) (waited time.Duration, err error) {
	for from := time.Now(); err == nil; waited = time.Since(from) {
		current, failed := w.steps.Log.Load(ctx, a.TownID)
		by, pause := w.config.WorldPause.Of(current), w.config.Policy.Resend
		if failed == nil {
			if w.supersededBy(current, a) {
				return waited, errSuperseded
			}
			failed = w.confirm(ctx, a, current)
		}
		switch {
		case failed != nil:
			pause = pollPause
			if ctx.Err() == nil {
				w.config.Logger.Warn(
					"a command waits: its town cannot be read, so it is not known "+
						"whether it is paused; will try again",
					"town", a.TownID, "run", a.RunID, a.Trace.LogAttr(), "error", failed)
			}
		case by == nil:
			if waited > 0 {
				w.Hold(ctx, a.TownID, current.Pending)
			}
			return waited, nil
		case waited >= w.config.PauseWait:
			a.answer(machine.Answer{}, Paused(a.TownID, current.Paused == nil, by, a.RunID, true))
		default:
			pause = min(pause, w.config.PauseWait-waited)
		}
		_, err = w.next(ctx, a, pause, nil)
	}
	return waited, err
}

// pause waits. It fails as attempt does.
func (w *Worker) pause(ctx context.Context, a *Application, wait time.Duration) error {
	for until := time.Now().Add(wait); time.Now().Before(until); {
		if _, err := w.next(ctx, a, time.Until(until), nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// superseded reports whether the log has gone on without a.
func (w *Worker) superseded(ctx context.Context, a *Application) bool {
	current, err := w.steps.Log.Load(ctx, a.TownID)
	return err == nil && w.supersededBy(current, a)
}

func (w *Worker) supersededBy(current machine.Town, a *Application) bool {
	p := current.Pending
	gone := p == nil || p.Run.RunID != a.RunID || p.Attempt != a.Pending.Attempt
	if gone {
		w.steps.Towns.Forget(a.TownID)
	}
	return gone
}
