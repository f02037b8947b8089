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

// askPlugin sends the plugin the request.
func (x *Execution) askPlugin(ctx context.Context) (more bool) {
	d := x.dispatcher
	if !d.stepper.IsWriter() {
		x.abandon(ctx)
		return false
	}
	x.noteSent()
	x.attempt.action = x.attempt.plugin.Requested(time.Now(), x.sendRequest())
	x.due, x.gameAbsent = x.attempt.action.Wait, false // a plugin that has the request and is silent counts as present
	d.Absences.ClearWait(x.TownID)
	return len(x.replies) > 0 // those of an earlier attempt
}

func (x *Execution) sendRequest() error {
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

// receive handles the replies that have come. A plugin's reply before an attempt has begun, or while
// the execution is postponed, is handled later.
func (x *Execution) receive(ctx context.Context) {
	for x.phase < committing && x.waitingSince.IsZero() && (x.attempt.plugin != nil || x.console.inFlight) {
		select {
		case r := <-x.replies:
			if r.console != nil {
				x.consoleReplied(ctx, r.console)
			} else {
				x.pluginReplied(ctx, r)
			}
		default:
			return
		}
	}
}

// pluginReplied handles a reply to an attempt's request, or the lack of one.
func (x *Execution) pluginReplied(ctx context.Context, r Reply) {
	d, p, now := x.dispatcher, x.attempt.plugin, time.Now()
	isAnswer := r.Msg != nil && !isNoResponders(r.Msg)
	switch {
	case isAnswer:
		x.attempt.action = p.Replied(now, r.Msg.Data, r.Attempt)
	case r.Msg != nil:
		x.attempt.action = p.NoResponders(now, r.Attempt)
	default:
		x.attempt.action = p.TimedOut(now)
	}
	x.due = x.attempt.action.Wait
	x.noteReach(p.Reach(false))
	if err := x.attempt.action.Invalid; err != nil {
		d.config.Logger.Warn("a plugin's answer is invalid, and counts as silence", "town", x.TownID,
			"run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
	over := x.attempt.action.Over
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
	if over == nil {
		return
	}
	if r.Msg != nil {
		failpoint.Hit(failpoint.Answered)
	}
	x.noteReach(p.Reach(true))
	x.finishAttempt(*over)
}

// noteGameAbsent records that the last request found no game, and that the game is asked again after
// next. With over, the attempt has ended.
func (x *Execution) noteGameAbsent(ctx context.Context, said string, next time.Duration, over bool) {
	d := x.dispatcher
	x.gameAbsent = true
	d.Absences.NoteAbsent(ctx, x.About, 1+d.config.Queue.TownDepth(x.TownID), over)
	d.Absences.NoteWait(x.TownID, messages.AbsentPlugin{Attempt: x.Pending.Attempt, Said: said,
		NextAt: runevents.Timestamp(d.stepper.Now().Add(next))})
	d.config.Queue.Wake(x.TownID) // requests that have waited long enough are answered now
}

// noteGamePresent records that the last request found a game.
func (x *Execution) noteGamePresent(ctx context.Context) {
	x.gameAbsent = false
	x.dispatcher.Absences.NotePresent(ctx, x.About)
}

// finishAttempt ends the attempt with an outcome, which is committed next.
func (x *Execution) finishAttempt(result apply.AttemptResult) {
	d := x.dispatcher
	result.Attempt, result.At = x.Pending.Attempt, d.stepper.Now()
	x.phase, x.result, x.due, x.attempt.plugin, x.gameAbsent = committing, &result, time.Time{}, nil, false
	x.commitRetries.Reset()
	d.Absences.ClearWait(x.TownID)
	if d.config.Metrics != nil {
		d.config.Metrics.Attempt(x.binding, result, time.Since(x.attempt.start))
	}
}
