package fsck

import (
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
)

// checkCancelled checks a record that ends the run of a pending handoff without a result.
func (l *LogCheck) checkCancelled(v *Verdict, rec *commitlog.Record, prior *townState) {
	replay := l.replay(v, rec)
	if replay == nil {
		return
	}
	delete(l.Runs, rec.Run.RunID)
	v.want("the run is not cancelled",
		replayUntilCancelled(replay.attempt).text(replay), replay.text(replay))
	if rec.Result != nil {
		v.want("a cancelled handoff has a result", "", string(rec.Result))
	}
	var p *apply.Pending
	switch {
	case !prior.known:
	case prior.town.Pending == nil:
		v.follows("the run that is cancelled was not pending", "", "run "+rec.Run.RunID)
	default:
		v.checkCarried(rec, &prior.town)
		p = prior.town.Pending
		v.follows("the cancelled run is not that of the pending handoff",
			identityText(&p.Run), identityText(&rec.Run.Identity))
		if replay.attempt > 0 {
			v.follows("the attempt that was cancelled is not the pending one",
				Text(p.Attempt), Text(replay.attempt))
		}
		replay.checkRetry(v, p.RetryOf)
	}
	v.checkCancellation(replay, p)
}

// checkCancellation checks the payloads of a cancelled run: its handoff, why its last attempt
// failed, and which signal ended it. p is the handoff that was pending, nil if that is not known.
func (v *Verdict) checkCancellation(s *runReplay, p *apply.Pending) {
	for i := range s.payloads {
		c := &s.payloads[i]
		switch c.event.EventType {
		case runevents.RunStarted:
			v.payloadHas(c, s.town, "townId")
			if p == nil {
				continue
			}
			if app, err := p.Read(); err == nil {
				v.payloadHas(c, app.Handoff.HandoffID, "handoffId")
				v.payloadHas(c, app.Handoff.Command, "command")
			}
		case runevents.StepFailed:
			if c.event.LogicalAttemptID == s.attempt {
				v.payloadHas(c, lifecycle.CancelledInHand, "error", "code")
			}
		case runevents.RunCancelled:
			v.checkSignal(c, p)
		}
	}
}

// checkSignal checks that a cancellation names its signal, and that only one by force ends a run
// for whose command a request may have reached a game.
func (v *Verdict) checkSignal(c *payloadCheck, p *apply.Pending) {
	if payloadText(c.event.Payload, "signalId") == "" {
		v.payloadIs(c, "a signalId", "")
	}
	forced := payloadText(c.event.Payload, "code") == lifecycle.CancelledByForce
	if !forced && p != nil && p.Reached {
		v.follows("a command was cancelled without force, and a request may have reached the game",
			lifecycle.CancelledByForce, "")
	}
}
