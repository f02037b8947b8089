package game

import (
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
)

// Pauses before a plugin is asked again.
const (
	// after NATS's answer that no plugin is subscribed; with a grace the pause grows up to resend
	absentPause = 250 * time.Millisecond
	laterPause  = 500 * time.Millisecond // after an answer busy or in-progress that names no pause

	// In the last reachTime of an attempt no request is sent to an absent plugin: NATS's answer that
	// none is subscribed might come too late.
	reachTime = time.Second
)

// pluginAttempt decides the next action of one logical attempt to have a plugin apply a command. It
// has no clock and does no I/O: its caller sends the request, waits as the action says, and reports
// the result. It is for one goroutine.
type pluginAttempt struct {
	applyID  string
	number   int64         // of the logical attempt
	deadline time.Time     // when the attempt ends
	resend   time.Duration // the silence after which the request is sent again
	// grace is the least time that an attempt has left when an absent plugin returns. With 0 an
	// absence does not prolong the attempt.
	grace time.Duration

	// earlier reports that a request of an earlier attempt, or of another server, may have reached a
	// plugin; reached reports that a request of this attempt may have reached one. absent reports that
	// no plugin was subscribed for the last request.
	earlier            bool
	reached, unreached bool
	sent, busy         bool          // a request was sent; the plugin answered busy to the last one
	away               time.Duration // the last pause because no plugin is subscribed
	next               time.Time     // when the request is due again
	last               error         // the last error, in sending a request or reading an answer
}

// action is an attempt's next action. If over is set, the attempt ends with it. If send is set, the
// request is sent. Otherwise the caller waits for a reply.
type action struct {
	over *apply.AttemptResult
	send bool      // then call requested
	wait time.Time // at most until then; then call replied or timedOut
	// invalid is the reason why the reply before the action was no valid answer.
	invalid error
}

// due returns the action after a wait: another request, or the end of the attempt. With a grace an
// absent plugin is asked again even if this process was suspended meanwhile.
func (p *pluginAttempt) due(now time.Time) action {
	if until := now.Add(p.grace); p.unreached && p.deadline.Before(until) {
		p.deadline = until
	}
	if now.Before(p.deadline) {
		return action{send: true}
	}
	reached := p.earlier || p.reached
	return action{over: &apply.AttemptResult{Failure: apply.NoAnswer(reached, p.last), Reached: reached}}
}

// isInHand reports whether a plugin may be working on the last request.
func (p *pluginAttempt) isInHand() bool { return p.sent && !p.unreached && !p.busy }

// reach returns the known reach of the attempt's requests. With over, a request that a plugin may
// be working on counts as arrived.
func (p *pluginAttempt) reach(over bool) apply.Reach {
	switch {
	case p.reached || over && p.isInHand():
		return apply.MayBeReached
	case p.unreached:
		return apply.Unreached
	}
	return apply.ReachUnknown
}

// requested records that the request was sent, or failed with err.
func (p *pluginAttempt) requested(now time.Time, err error) action {
	if err != nil {
		p.last = err
	}
	p.sent, p.unreached, p.busy = true, false, false
	return p.waitFor(now, p.resend)
}

// timedOut records that no reply came within the wait.
func (p *pluginAttempt) timedOut(now time.Time) action {
	p.reached = p.reached || !p.unreached
	return p.due(now)
}

// replied handles a reply to a request of a logical attempt.
func (p *pluginAttempt) replied(now time.Time, msg *nats.Msg, attempt int64) action {
	if isNoResponders(msg) {
		return p.noResponders(now, attempt)
	}
	p.unreached, p.away = false, 0
	answer, err := apply.ParseAnswer(msg.Data, p.applyID, schemas.Limits{})
	p.reached = true
	switch {
	case err != nil:
		p.last = err
		next := p.waitFor(now, p.resend)
		next.invalid = err
		return next
	case answer.Status == apply.Applied:
		return action{over: new(answer.Result())}
	case attempt != p.number: // an earlier attempt's answer that the command is not applied
		return action{wait: p.next}
	case answer.Status == apply.Refused:
		return action{over: new(answer.Result())}
	}
	p.busy = answer.Status == apply.Busy
	pause := laterPause
	if answer.RetryAfterMs > 0 {
		pause = time.Duration(answer.RetryAfterMs) * time.Millisecond
	}
	return p.waitFor(now, pause)
}

func (p *pluginAttempt) noResponders(now time.Time, attempt int64) action {
	switch {
	case attempt != p.number: // it is not about the last request
		return action{wait: p.next}
	case p.grace > 0:
		p.away = max(absentPause, min(2*p.away, p.resend))
		if until := now.Add(p.away + p.grace); until.After(p.deadline) {
			p.deadline = until
		}
	case p.deadline.Before(now.Add(absentPause + min(p.resend, reachTime))):
		// Whether another request has arrived might be unknown at the end, and then the command is in doubt.
		p.away = p.deadline.Sub(now)
	default:
		p.away = absentPause
	}
	p.unreached = true
	return p.waitFor(now, p.away)
}

// waitFor waits for a reply before the request is due again, at most until the attempt ends.
func (p *pluginAttempt) waitFor(now time.Time, pause time.Duration) action {
	p.next = now.Add(pause)
	if p.deadline.Before(p.next) {
		p.next = p.deadline
	}
	return action{wait: p.next}
}

// isNoResponders reports whether msg is NATS's answer that no plugin is subscribed.
func isNoResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}
