package game

import (
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
)

// Pauses before a plugin is asked again.
const (
	// no plugin is subscribed; with Patience it grows to Resend
	absentPause = 250 * time.Millisecond
	laterPause  = 500 * time.Millisecond // busy or in-progress, and the plugin names no time

	// fateTime before an attempt's end no further request is sent to a plugin that is away: until
	// then NATS has answered that none is subscribed.
	fateTime = time.Second
)

// PluginAttempt decides the next action of one logical attempt to have a plugin apply a command. It
// has no clock and does no I/O: its caller sends the request, waits as the action says, and reports
// the result. It is for one goroutine.
type PluginAttempt struct {
	ApplyID string
	Number  int64         // of the logical attempt
	Until   time.Time     // when the attempt ends
	Resend  time.Duration // after what silence the request is sent again
	// Patience is the attempt's remaining time when an absent plugin comes back; with 0 the attempt
	// ends meanwhile.
	Patience time.Duration

	// Earlier reports that a request of an earlier attempt, or of another server, may have reached
	// a plugin; reached that one of this attempt may have; and absent that NATS found no plugin
	// subscribed to the last one.
	Earlier         bool
	reached, absent bool
	sent, busy      bool
	away            time.Duration // the last pause because no plugin is subscribed
	next            time.Time     // when the request is due again
	last            error         // the last trouble
}

// Action is an attempt's next action: send the request, wait for a reply, or end.
type Action struct {
	// Send: send the request, and call Sent. Again reports whether it was sent before: then the log
	// may have gone on meanwhile.
	Send, Again bool
	// Wait: wait until then for a reply, and call Replied or TimedOut.
	Wait time.Time
	// Over is the attempt's end; nil while it goes on.
	Over *apply.Result
}

// Due returns the action when the next request is due.
func (p *PluginAttempt) Due(now time.Time) Action {
	if !now.Before(p.Until) {
		return p.GiveUp()
	}
	return Action{Send: true, Again: p.sent}
}

// GiveUp ends the attempt without a definite answer.
func (p *PluginAttempt) GiveUp() Action {
	reached := p.Earlier || p.reached
	return Action{Over: &apply.Result{Failed: apply.Silence(reached, p.last), Reached: reached}}
}

// InHand reports whether a plugin may be working on the last request: it got one, and did not
// answer that it had not begun.
func (p *PluginAttempt) InHand() bool { return p.sent && !p.absent && !p.busy }

// Away reports whether NATS found no plugin subscribed to the last request.
func (p *PluginAttempt) Away() bool { return p.absent }

// Waits reports whether the attempt lasts until a plugin comes, and none is there.
func (p *PluginAttempt) Waits() bool { return p.absent && p.Patience > 0 }

// Sighting reports whether a reply, or nil for none, shows that a plugin is present or absent, and
// which. Silence does not: the connection may be down. Nor does NATS's answer to an earlier
// attempt's request.
func (p *PluginAttempt) Sighting(msg *nats.Msg) (absent, known bool) {
	return p.absent, p.absent || msg != nil && !isNoResponders(msg)
}

// Arrival returns the known fate of the attempt's requests. At the end of the attempt, one that a
// plugin may be working on may have arrived.
func (p *PluginAttempt) Arrival(over bool) apply.Arrival {
	switch {
	case p.reached || over && p.InHand():
		return apply.MayHaveArrived
	case p.absent:
		return apply.NotArrived
	}
	return apply.MayArrive
}

// Sent records that the request was sent, or failed with err.
func (p *PluginAttempt) Sent(now time.Time, err error) Action {
	if err != nil {
		p.last = err
	}
	p.sent, p.absent, p.busy = true, false, false
	return p.waitFor(now, p.Resend)
}

// TimedOut records that no reply came within the wait.
func (p *PluginAttempt) TimedOut(now time.Time) Action {
	p.reached = p.reached || !p.absent
	return p.Due(now)
}

// Replied handles a reply to a request of a logical attempt.
func (p *PluginAttempt) Replied(now time.Time, msg *nats.Msg, attempt int64) Action {
	if isNoResponders(msg) {
		if attempt != p.Number { // which says nothing about the last request
			return Action{Wait: p.next}
		}
		p.absent = true
		if p.Patience == 0 {
			if p.Until.Before(now.Add(absentPause + min(p.Resend, fateTime))) {
				// Another request's fate might be unknown at the end, and the command would be in
				// doubt.
				return p.waitFor(now, p.Until.Sub(now))
			}
			return p.waitFor(now, absentPause)
		}
		p.away = max(absentPause, min(2*p.away, p.Resend))
		if until := now.Add(p.away + p.Patience); until.After(p.Until) {
			p.Until = until
		}
		return p.waitFor(now, p.away)
	}
	p.absent, p.away = false, 0
	answer, err := apply.ParseAnswer(msg.Data, p.ApplyID, schemas.Limits{})
	p.reached = true
	switch {
	case err != nil:
		p.last = err
		return p.waitFor(now, p.Resend)
	case answer.Status == apply.Applied:
		return Action{Over: new(answer.Result())}
	case attempt != p.Number: // an earlier attempt's answer that the command is not applied
		return Action{Wait: p.next}
	case answer.Status == apply.Refused:
		return Action{Over: new(answer.Result())}
	}
	p.busy = answer.Status == apply.Busy
	pause := laterPause
	if answer.RetryAfterMs > 0 {
		pause = time.Duration(answer.RetryAfterMs) * time.Millisecond
	}
	return p.waitFor(now, pause)
}

// waitFor waits for a reply before the request is due again, at most until the attempt ends.
func (p *PluginAttempt) waitFor(now time.Time, pause time.Duration) Action {
	p.next = now.Add(pause)
	if p.Until.Before(p.next) {
		p.next = p.Until
	}
	return Action{Wait: p.next}
}

// isNoResponders reports whether a reply is NATS's, that no plugin is subscribed.
func isNoResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}
