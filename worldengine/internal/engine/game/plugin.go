package game

import (
	"context"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/wire"
)

// pluginAsker asks a plugin. apply.PluginAttempt decides about its requests.
type pluginAsker struct {
	x       *Execution
	command *apply.Command // the request
	attempt *apply.PluginAttempt
	action  apply.PluginAction // the next one of attempt
}

func newPluginAsker(x *Execution) asker { return &pluginAsker{x: x} }

func (p *pluginAsker) start(command *apply.Command, at time.Time) {
	p.command = command
	p.attempt = apply.NewPluginAttempt(command, at, &p.x.dispatcher.config.Retry, p.x.Pending.MayHaveReached)
	p.action = p.attempt.Due(at)
}

func (p *pluginAsker) progress() (sent request, mayBeWorking bool) {
	switch {
	case p.x.phase != asking: // replies to an earlier attempt are handled in the next one
		return unsent, false
	case p.action.Send:
		return unsent, p.attempt.MayBeWorking()
	}
	return awaited, p.attempt.MayBeWorking()
}

func (p *pluginAsker) prolong(wait time.Duration) {
	if p.x.phase == asking {
		p.attempt.Prolong(wait)
	}
}

func (p *pluginAsker) ask() {
	p.x.noteSent()
	p.action = p.attempt.Requested(time.Now(), p.publish())
	p.x.due, p.x.absence.isAbsent = p.action.Wait, false // a plugin that has the request and is silent counts as present
	p.x.dispatcher.Absences.ClearWait(p.x.TownID)
}

func (p *pluginAsker) publish() error {
	x, d := p.x, p.x.dispatcher
	now := d.stepper.Now()
	p.command.Deadline = now.Add(time.Until(p.attempt.Deadline()))
	data, err := p.command.MarshalWire(now)
	if err == nil {
		subject := wire.ApplySubject(d.stepper.Log.World, wire.TownToken(x.TownID))
		err = d.config.Router.Ask(subject, x, x.Pending.Attempt, data)
	}
	failpoint.Hit(failpoint.PluginAsked)
	return err
}

func (p *pluginAsker) handleReply(ctx context.Context, r Reply) {
	x, now, isAnswer := p.x, time.Now(), !isNoResponders(r.Msg)
	if isAnswer {
		p.action = p.attempt.Replied(now, r.Msg.Data, r.Attempt)
	} else {
		p.action = p.attempt.NoResponders(now, r.Attempt)
	}
	if err := p.action.Invalid; err != nil {
		x.dispatcher.config.Logger.Warn("a plugin's answer is invalid, and counts as silence", "town", x.TownID,
			"run", x.RunID, x.Trace.LogAttr(), "error", err)
	}
	p.followAction(ctx, now, isAnswer)
	if x.phase == committing {
		failpoint.Hit(failpoint.Answered)
	}
}

func (p *pluginAsker) handleSilence(ctx context.Context) {
	now := time.Now()
	p.action = p.attempt.TimedOut(now)
	p.followAction(ctx, now, false)
}

// followAction goes on with the attempt as its action says. isAnswer reports that the plugin has answered.
func (p *pluginAsker) followAction(ctx context.Context, now time.Time, isAnswer bool) {
	x, over := p.x, p.action.Over
	x.due = p.action.Wait
	x.noteReach(p.attempt.Reach(false))
	switch noPlugin, trouble := p.attempt.NoPlugin(); {
	case noPlugin:
		reason := "No plugin is subscribed for the town."
		if trouble != nil {
			reason = phrase.Sentence(trouble)
		} else if last := x.Pending.LastFailure; last != nil {
			reason = last.Message
		}
		x.noteGameAbsent(ctx, reason, max(p.action.Wait.Sub(now), 0), over != nil)
	case isAnswer:
		x.noteGamePresent(ctx)
	}
	if over != nil {
		x.noteReach(p.attempt.Reach(true))
		x.finishAttempt(*over)
	}
}

func (*pluginAsker) close() {} // a plugin's requests have no end
