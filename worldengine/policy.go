package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
)

// The reasons why an accepted handoff failed outside the engine.
const (
	// ReasonPluginTimeout: no definite answer came in any attempt, and some request may have arrived.
	ReasonPluginTimeout handoff.ReasonCode = "PLUGIN_TIMEOUT"
	// ReasonPluginUnavailable: no request reached anybody, so the command was not applied.
	ReasonPluginUnavailable handoff.ReasonCode = "PLUGIN_UNAVAILABLE"
	// ReasonPluginRejected: the plugin refused, for good or in the last attempt.
	ReasonPluginRejected handoff.ReasonCode = "PLUGIN_REJECTED"
	// ReasonPluginStateInvalid: the plugin reported a state that is not a snapshot.v1 of the town.
	ReasonPluginStateInvalid handoff.ReasonCode = "PLUGIN_STATE_INVALID"
	// ReasonRCONInDoubt: the command may be applied, and a console cannot be asked again.
	ReasonRCONInDoubt handoff.ReasonCode = "RCON_IN_DOUBT"
)

// Applier applies commands by other means than a plugin that is asked over NATS. Its ids are not
// idempotent: Apply is called once for an attempt. An error that is apply.ErrUnavailable says that
// nothing was applied; any other that nobody knows.
type Applier interface {
	Apply(ctx context.Context, c *apply.Command) (apply.Answer, error)
}

// PluginPolicy says how patiently whoever applies commands is asked. The zero value of every member
// means its default.
type PluginPolicy struct {
	// Deadline is how long one logical attempt may take; 10 s.
	Deadline time.Duration
	// Attempts is how many logical attempts there are before the handoff fails; 3.
	Attempts int64
	// Backoff is the pause before the second attempt; it doubles with each; 1 s.
	Backoff time.Duration
	// Resend is after what silence the same request is sent again within an attempt; 2 s.
	Resend time.Duration
}

func (p PluginPolicy) withDefaults() PluginPolicy {
	p.Deadline = orDefault(p.Deadline, 10*time.Second)
	p.Attempts = orDefault(p.Attempts, 3)
	p.Backoff = orDefault(p.Backoff, time.Second)
	p.Resend = orDefault(p.Resend, 2*time.Second)
	return p
}

func (p *PluginPolicy) validate() error {
	if p.Deadline < 0 || p.Backoff < 0 || p.Resend < 0 || p.Attempts < 1 {
		return errors.New("worldengine: the policy for plugins takes at least one attempt and positive times")
	}
	return nil
}

// maxBackoff bounds the pause between two attempts.
const maxBackoff = time.Minute

// backoff is the pause after an attempt, counted from 1.
func (p *PluginPolicy) backoff(attempt int64) time.Duration {
	pause := p.Backoff
	for range attempt - 1 {
		if pause >= maxBackoff {
			break
		}
		pause *= 2
	}
	return min(pause, maxBackoff)
}

// verdict is how an attempt to apply a command ended.
type verdict struct {
	attempt  int64
	applied  bool
	snapshot jsontext.Value // the state that was reported; nil for the expected one
	failed   *applyFailed   // where it was not applied
	// reached says that a request may have reached somebody.
	reached bool
}

// conclusion is what follows from a verdict: the town's state after an executed command, or why it
// failed, and whether there is to be another attempt.
type conclusion struct {
	after  town.State
	failed *applyFailed
	again  bool
}

// conclude decides what follows from a verdict about a. It is pure.
func (a *application) conclude(v verdict, policy *PluginPolicy) conclusion {
	if v.applied {
		after, failed := a.reported(v.snapshot)
		if failed == nil {
			return conclusion{after: after}
		}
		v.failed = failed
	}
	if v.failed.Retryable && a.pending.Attempt < policy.Attempts {
		return conclusion{failed: v.failed, again: true}
	}
	return conclusion{failed: v.failed}
}

// reported returns the state after a command that was applied: the expected one, or the one that was
// reported, whose day is at least the expected one's.
func (a *application) reported(snapshot jsontext.Value) (town.State, *applyFailed) {
	if snapshot == nil {
		return a.expected, nil
	}
	invalid := func(why string) (town.State, *applyFailed) {
		return town.State{}, &applyFailed{Reason: ReasonPluginStateInvalid, Message: why, Retryable: true}
	}
	state, err := town.Parse(snapshot, schemas.Limits{})
	if err != nil {
		return invalid("The reported state is not a snapshot.v1: " + err.Error())
	}
	if got, want := state.Snapshot.TownID, a.expected.Snapshot.TownID; got != want {
		return invalid(fmt.Sprintf("The reported state is that of the town %q, not of %q.", got, want))
	}
	if state.Epoch() < a.expected.Epoch() {
		moved := *state.Snapshot
		moved.Day = a.expected.Epoch()
		state = town.NewState(&moved)
	}
	return state, nil
}

// refusal is the failure that a plugin's refusal is.
func refusal(a apply.Answer) *applyFailed {
	return &applyFailed{
		Reason: ReasonPluginRejected, Code: a.ReasonCode, Retryable: a.Retryable,
		Message: orDefault(clipped(a.Message), "The plugin refused the command."),
	}
}

// maxMessage bounds what a plugin's words take in the run's events, in bytes.
const maxMessage = 1024

func clipped(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return s[:cut] + "…"
}

// silence is the failure of an attempt that got no definite answer.
func silence(reached bool, last error) *applyFailed {
	f := &applyFailed{Reason: ReasonPluginTimeout, Retryable: true,
		Message: "The plugin gave no definite answer before the deadline."}
	if !reached {
		f.Reason, f.Message = ReasonPluginUnavailable, "No plugin is there to apply commands to the town."
	}
	if last != nil {
		f.Message += " Last trouble: " + clipped(last.Error())
	}
	return f
}
