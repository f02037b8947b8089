package apply

import (
	"time"

	"worldengine/schemas"
)

// Intervals between two requests of an attempt.
const (
	// absentInterval follows NATS's answer that no plugin is subscribed; with a grace it grows up to resend.
	absentInterval = 250 * time.Millisecond
	laterInterval  = 500 * time.Millisecond // after an answer busy or in-progress that names none

	// In the last minAnswerTimeout of an attempt no request is sent to an absent plugin: NATS's answer that
	// none is subscribed might come too late.
	minAnswerTimeout = time.Second
)

// PluginAttempt decides the next action of one logical attempt to have a plugin apply a command. It
// has no clock and does no I/O: its caller sends the request, waits as the action says, and reports
// the result. It is for one goroutine.
type PluginAttempt struct {
	applyID  string
	number   int64         // of the logical attempt
	deadline time.Time     // when the attempt ends
	resend   time.Duration // the silence after which the request is sent again
	// grace is the least time that an attempt has left when an absent plugin returns. With 0 an
	// absence does not prolong the attempt.
	grace time.Duration

	// reachedBefore reports that a request of an earlier attempt, or of another server, may have reached a
	// plugin; reached reports that a request of this attempt may have reached one. noPlugin reports that
	// no plugin was subscribed for the last request.
	reachedBefore     bool
	reached, noPlugin bool
	sent, busy        bool          // a request was sent; the plugin answered busy to the last one
	absentFor         time.Duration // the last interval because no plugin is subscribed
	next              time.Time     // when the request is due again
	last              error         // the last error, in sending a request or reading an answer
}

// PluginAction is an attempt's next action. If Over is set, the attempt ends with it. If Send is set,
// the request is sent. Otherwise the caller waits for a reply.
type PluginAction struct {
	Over *AttemptResult
	Send bool      // then call Requested
	Wait time.Time // at most until then; then call Replied, NoResponders or TimedOut
	// Invalid is the reason why the reply before the action was no valid answer.
	Invalid error
}

// NewPluginAttempt returns the attempt of a command, from start on for policy.Deadline. reachedBefore
// reports that a request of an earlier attempt, or of another server, may have reached a plugin.
func NewPluginAttempt(c *Command, start time.Time, policy *RetryPolicy, reachedBefore bool) *PluginAttempt {
	return &PluginAttempt{
		applyID: c.ApplyID, number: c.LogicalAttemptID, deadline: start.Add(policy.Deadline),
		resend: policy.Resend, grace: policy.AbsenceGrace(), reachedBefore: reachedBefore,
	}
}

// Due returns the action after a wait: another request, or the end of the attempt. With a grace an
// absent plugin is asked again even if this process was suspended meanwhile.
func (p *PluginAttempt) Due(now time.Time) PluginAction {
	if until := now.Add(p.grace); p.noPlugin && p.deadline.Before(until) {
		p.deadline = until
	}
	if now.Before(p.deadline) {
		return PluginAction{Send: true}
	}
	reached := p.reachedBefore || p.reached
	return PluginAction{Over: &AttemptResult{Failure: NoAnswer(reached, p.last), MayHaveReached: reached}}
}

// Deadline is when the attempt ends. Prolong moves it.
func (p *PluginAttempt) Deadline() time.Time { return p.deadline }

// Prolong adds the time of a pause, in which no request was sent.
func (p *PluginAttempt) Prolong(pause time.Duration) { p.deadline = p.deadline.Add(pause) }

// MayBeWorking reports whether a plugin may be working on the last request.
func (p *PluginAttempt) MayBeWorking() bool { return p.sent && !p.noPlugin && !p.busy }

// NoPlugin reports whether no plugin was subscribed for the last request, and returns the last error; nil
// if there was none.
func (p *PluginAttempt) NoPlugin() (noPlugin bool, last error) { return p.noPlugin, p.last }

// Reach returns the known reach of the attempt's requests. With over, a request that a plugin may
// be working on counts as arrived.
func (p *PluginAttempt) Reach(over bool) Reach {
	switch {
	case p.reached || over && p.MayBeWorking():
		return MayHaveReached
	case p.noPlugin:
		return Unreached
	}
	return ReachUnknown
}

// Requested records that the request was sent, or failed with err.
func (p *PluginAttempt) Requested(now time.Time, err error) PluginAction {
	if err != nil {
		p.last = err
	}
	p.sent, p.noPlugin, p.busy = true, false, false
	return p.waitFor(now, p.resend)
}

// TimedOut records that no reply came within the wait.
func (p *PluginAttempt) TimedOut(now time.Time) PluginAction {
	p.reached = p.reached || !p.noPlugin
	return p.Due(now)
}

// Replied handles a plugin's reply to a request of a logical attempt.
func (p *PluginAttempt) Replied(now time.Time, data []byte, attempt int64) PluginAction {
	p.noPlugin, p.absentFor = false, 0
	answer, err := ParseAnswer(data, p.applyID, schemas.Limits{})
	p.reached = true
	switch {
	case err != nil:
		p.last = err
		next := p.waitFor(now, p.resend)
		next.Invalid = err
		return next
	case answer.Status == Applied:
		return PluginAction{Over: new(answer.Result())}
	case attempt != p.number: // an earlier attempt's answer that the command is not applied
		return PluginAction{Wait: p.next}
	case answer.Status == Refused:
		return PluginAction{Over: new(answer.Result())}
	}
	p.busy = answer.Status == Busy
	interval := laterInterval
	if answer.RetryAfterMs > 0 {
		interval = time.Duration(answer.RetryAfterMs) * time.Millisecond
	}
	return p.waitFor(now, interval)
}

// NoResponders handles NATS's answer that no plugin was subscribed for a request of a logical attempt.
func (p *PluginAttempt) NoResponders(now time.Time, attempt int64) PluginAction {
	switch {
	case attempt != p.number: // it is not about the last request
		return PluginAction{Wait: p.next}
	case p.grace > 0:
		p.absentFor = max(absentInterval, min(2*p.absentFor, p.resend))
		if until := now.Add(p.absentFor + p.grace); until.After(p.deadline) {
			p.deadline = until
		}
	case p.deadline.Before(now.Add(absentInterval + min(p.resend, minAnswerTimeout))):
		// Whether another request has arrived might be unknown at the end, and then the command is in doubt.
		p.absentFor = p.deadline.Sub(now)
	default:
		p.absentFor = absentInterval
	}
	p.noPlugin = true
	return p.waitFor(now, p.absentFor)
}

// waitFor waits for a reply before the request is due again, at most until the attempt ends.
func (p *PluginAttempt) waitFor(now time.Time, interval time.Duration) PluginAction {
	p.next = now.Add(interval)
	if p.deadline.Before(p.next) {
		p.next = p.deadline
	}
	return PluginAction{Wait: p.next}
}
