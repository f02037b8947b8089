package game

import (
	"context"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// sendRequest asks the game to apply the command.
func (x *Execution) sendRequest(ctx context.Context) {
	switch {
	case !x.dispatcher.stepper.IsWriter():
		x.abandon(ctx)
	case x.binding == apply.RCON:
		x.askConsole()
	default:
		x.askPlugin()
	}
}

// askPlugin sends the plugin the request.
func (x *Execution) askPlugin() {
	x.noteSent()
	x.attempt.action = x.attempt.plugin.Requested(time.Now(), x.publish())
	x.due, x.absence.isAbsent = x.attempt.action.Wait, false // a plugin that has the request and is silent counts as present
	x.dispatcher.Absences.ClearWait(x.TownID)
}

func (x *Execution) publish() error {
	d := x.dispatcher
	now := d.stepper.Now()
	x.attempt.command.Deadline = now.Add(time.Until(x.attempt.plugin.Deadline()))
	data, err := x.attempt.command.MarshalWire(now)
	if err == nil {
		subject := wire.ApplySubject(d.stepper.Log.World, wire.TownToken(x.TownID))
		err = d.config.Router.Ask(subject, x, x.Pending.Attempt, data)
	}
	failpoint.Hit(failpoint.PluginAsked)
	return err
}

// handleReply handles a reply to a request.
func (x *Execution) handleReply(ctx context.Context, r Reply) {
	if r.console != nil {
		x.consoleReplied(ctx, r.console)
	} else {
		x.pluginReplied(ctx, r)
	}
}

// pluginReplied handles a reply to an attempt's request.
func (x *Execution) pluginReplied(ctx context.Context, r Reply) {
	p, now, isAnswer := x.attempt.plugin, time.Now(), !isNoResponders(r.Msg)
	if isAnswer {
		x.attempt.action = p.Replied(now, r.Msg.Data, r.Attempt)
	} else {
		x.attempt.action = p.NoResponders(now, r.Attempt)
	}
	if err := x.attempt.action.Invalid; err != nil {
		x.dispatcher.config.Logger.Warn("a plugin's answer is invalid, and counts as silence", "town", x.TownID,
			"run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
	x.followAction(ctx, now, isAnswer)
	if x.phase == committing {
		failpoint.Hit(failpoint.Answered)
	}
}

// handleSilence handles that no reply to an attempt's request came in time.
func (x *Execution) handleSilence(ctx context.Context) {
	now := time.Now()
	x.attempt.action = x.attempt.plugin.TimedOut(now)
	x.followAction(ctx, now, false)
}

// followAction goes on with the attempt as its action says. isAnswer reports that the plugin has answered.
func (x *Execution) followAction(ctx context.Context, now time.Time, isAnswer bool) {
	p, over := x.attempt.plugin, x.attempt.action.Over
	x.due = x.attempt.action.Wait
	x.noteReach(p.Reach(false))
	switch noPlugin, trouble := p.NoPlugin(); {
	case noPlugin:
		said := "No plugin is subscribed for the town."
		if trouble != nil {
			said = phrase.Sentence(trouble)
		} else if last := x.Pending.LastFailure; last != nil {
			said = last.Message
		}
		x.noteGameAbsent(ctx, said, max(x.attempt.action.Wait.Sub(now), 0), over != nil)
	case isAnswer:
		x.noteGamePresent(ctx)
	}
	if over != nil {
		x.noteReach(p.Reach(true))
		x.finishAttempt(*over)
	}
}

// noteGameAbsent records that the last request found no game, and that the game is asked again after
// next. With over, the attempt has ended.
func (x *Execution) noteGameAbsent(ctx context.Context, said string, next time.Duration, over bool) {
	d := x.dispatcher
	x.absence.isAbsent = true
	d.Absences.NoteAbsent(ctx, x.About, 1+d.config.Queue.CountWaiting(x.TownID), over)
	d.Absences.NoteWait(x.TownID, messages.AbsentPlugin{Attempt: x.Pending.Attempt, Said: said,
		NextAt: runevents.Timestamp(d.stepper.Now().Add(next))})
	d.config.Queue.Wake(x.TownID) // requests that have waited long enough are answered now
}

// noteGamePresent records that the last request found a game.
func (x *Execution) noteGamePresent(ctx context.Context) {
	x.absence.isAbsent = false
	x.dispatcher.Absences.NotePresent(ctx, x.About)
}

// finishAttempt ends the attempt with an outcome, which is committed next.
func (x *Execution) finishAttempt(result apply.AttemptResult) {
	d := x.dispatcher
	result.Attempt, result.At = x.Pending.Attempt, d.stepper.Now()
	x.phase, x.result, x.due, x.attempt.plugin, x.absence.isAbsent = committing, &result, time.Time{}, nil, false
	x.commitRetries.Reset()
	d.Absences.ClearWait(x.TownID)
	if d.config.Metrics != nil {
		d.config.Metrics.Attempt(x.binding, result, time.Since(x.attempt.start))
	}
}
