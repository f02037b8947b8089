package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// The reasons why an accepted handoff failed outside the engine.
const (
	// ReasonPluginTimeout: no definite answer came in any attempt, and some request may have
	// arrived.
	ReasonPluginTimeout handoff.ReasonCode = "PLUGIN_TIMEOUT"
	// ReasonPluginUnavailable: no request reached a plugin or a console, so the command was not
	// applied.
	ReasonPluginUnavailable handoff.ReasonCode = "PLUGIN_UNAVAILABLE"
	// ReasonPluginRejected: the plugin refused, for good or in the last attempt.
	ReasonPluginRejected handoff.ReasonCode = "PLUGIN_REJECTED"
	// ReasonPluginStateInvalid: the plugin reported a state that is not a snapshot.v1 of the town.
	ReasonPluginStateInvalid handoff.ReasonCode = "PLUGIN_STATE_INVALID"
	// ReasonRCONInDoubt: the command may be applied, and a console cannot be asked again.
	ReasonRCONInDoubt handoff.ReasonCode = "RCON_IN_DOUBT"
)

// MayBeApplied reports whether a command that failed for a reason may be applied in the game all the
// same.
func MayBeApplied[R ~string](reason R) bool {
	switch handoff.ReasonCode(reason) {
	case ReasonPluginTimeout, ReasonPluginStateInvalid, ReasonRCONInDoubt:
		return true
	}
	return false
}

// Applier applies commands by other means than a plugin that is asked over NATS. Its ids are not
// idempotent: Apply is called once for an attempt. ErrUnavailable means that nothing was
// applied; any other error, that it is not known.
type Applier interface {
	Apply(ctx context.Context, c *Command) (Answer, error)
}

// Policy says how patiently plugins and consoles are asked to apply commands. The zero value of
// every member means its default.
type Policy struct {
	// Deadline is how long one logical attempt may take; 10 s.
	Deadline time.Duration
	// Attempts is how many logical attempts there are before the handoff fails; 3.
	Attempts int64
	// Backoff is the pause before the second attempt; it doubles with each; 1 s.
	Backoff time.Duration
	// Resend is after what silence the same request is sent again within an attempt; 2 s.
	Resend time.Duration
	// Absent is what becomes of a command while no plugin is subscribed for its town; AbsentWait.
	Absent Absent
}

// Absent is what becomes of a command whose town has no plugin.
type Absent string

// What may become of it.
const (
	// AbsentWait: the time of its attempt stands still until a plugin is there. Its run can be
	// cancelled meanwhile.
	AbsentWait Absent = "wait"
	// AbsentFail: its attempts pass, and its handoff fails with PLUGIN_UNAVAILABLE.
	AbsentFail Absent = "fail"
)

// Patience is how long an attempt still lasts when a plugin that is away comes; 0 where it ends
// meanwhile.
func (p *Policy) Patience() time.Duration {
	if p.Absent == AbsentWait {
		return p.Deadline
	}
	return 0
}

// WithDefaults returns the policy with the defaults of its zero members.
func (p Policy) WithDefaults() Policy {
	p.Deadline = cmp.Or(p.Deadline, 10*time.Second)
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Backoff = cmp.Or(p.Backoff, time.Second)
	p.Resend = cmp.Or(p.Resend, 2*time.Second)
	p.Absent = cmp.Or(p.Absent, AbsentWait)
	return p
}

// Validate returns an error for a policy without attempts or with negative times.
func (p *Policy) Validate() error {
	if p.Deadline < 0 || p.Backoff < 0 || p.Resend < 0 || p.Attempts < 1 {
		return errors.New("worldengine: the policy for plugins takes at least one attempt and " +
			"positive times")
	}
	if p.Absent != AbsentFail && p.Absent != AbsentWait {
		return fmt.Errorf("worldengine: commands without a plugin can %q or %q, not %q", AbsentWait,
			AbsentFail, p.Absent)
	}
	return nil
}

// maxBackoff bounds the pause between two attempts.
const maxBackoff = time.Minute

// PauseAfter is the pause after an attempt, counted from 1.
func (p *Policy) PauseAfter(attempt int64) time.Duration {
	pause := p.Backoff
	for range attempt - 1 {
		if pause >= maxBackoff {
			break
		}
		pause *= 2
	}
	return min(pause, maxBackoff)
}

// Result is how an attempt to apply a command ended.
type Result struct {
	// At is when the attempt ended, by the clock of the producer.
	At       time.Time
	Attempt  int64
	Applied  bool
	Snapshot jsontext.Value // the state that was reported; nil for the expected one
	// Embodiment is what the plugin reported of it, as it came; nil for nothing.
	Embodiment jsontext.Value
	Artifacts  Artifacts
	Failed     *Failure // where it was not applied
	// Reached reports whether a request may have reached a plugin or a console.
	Reached bool
}

// Result returns how an attempt ended that got a definite answer.
func (a *Answer) Result() Result {
	if a.Status != Applied {
		return Result{Failed: Refusal(*a), Reached: true}
	}
	return Result{
		Applied: true, Snapshot: a.Snapshot, Embodiment: a.Embodiment,
		Artifacts: artifactsOf(a.Artifacts), Reached: true,
	}
}

// ConsoleResult returns how an attempt by a console ended. Only ErrUnavailable means that the
// command was not applied.
func ConsoleResult(answer Answer, err error) Result {
	switch {
	case NotApplied(err):
		return Result{Failed: &Failure{
			Reason: ReasonPluginUnavailable, Message: clipped(wire.Sentence(err)), Retryable: true,
		}}
	case err != nil:
		return InDoubt(wire.Sentence(err))
	}
	return answer.Result()
}

// NotApplied reports whether err means that a console did not run the command.
func NotApplied(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInDoubt)
}

// InDoubt is how an attempt ended of which it is not known whether the console ran the command.
func InDoubt(why string) Result {
	return Result{Reached: true, Failed: &Failure{Reason: ReasonRCONInDoubt, Message: clipped(why)}}
}

// Arrival is whether a request may have reached a game. The set is closed.
type Arrival int

const (
	// NotArrived: none has, and none will while the gate is closed.
	NotArrived Arrival = iota
	// MayArrive: a request is out; its fate shows soon.
	MayArrive
	// MayHaveArrived: one may have.
	MayHaveArrived
)

// NextStep is what follows from the result of an attempt: the town's state after an executed
// command, or why it failed, and whether there is to be another attempt.
type NextStep struct {
	After town.State
	// Embodiment is that of an executed command, canonical JSON; nil where there is none.
	Embodiment jsontext.Value
	Failed     *Failure
	Again      bool
}

// NextStep decides what follows from the result of an attempt. It is pure.
func (a *Decoded) NextStep(v Result, policy *Policy) NextStep {
	if v.Applied {
		after, failed := a.reported(v.Snapshot)
		if failed == nil {
			return NextStep{After: after, Embodiment: embodied(v.Embodiment)}
		}
		v.Failed = failed
	}
	if v.Failed.Retryable && a.Pending.Attempt < policy.Attempts {
		return NextStep{Failed: v.Failed, Again: true}
	}
	return NextStep{Failed: v.Failed}
}

// reported returns the state after a command that was applied: the expected one, or the one that
// was reported, whose day is at least the expected one's.
func (a *Decoded) reported(snapshot jsontext.Value) (town.State, *Failure) {
	if snapshot == nil {
		return a.Expected, nil
	}
	invalid := func(why string) (town.State, *Failure) {
		return town.State{}, &Failure{Reason: ReasonPluginStateInvalid, Message: why,
			Retryable: true}
	}
	state, err := town.Parse(snapshot, schemas.Limits{})
	if err != nil {
		return invalid("The reported state is not a snapshot.v1: " + wire.Sentence(err))
	}
	if got, want := state.Snapshot.TownID, a.Expected.Snapshot.TownID; got != want {
		return invalid(fmt.Sprintf("The reported state is that of the town %q, not of %q.", got,
			want))
	}
	if state.Epoch() < a.Expected.Epoch() {
		moved := *state.Snapshot
		moved.Day = a.Expected.Epoch()
		state = town.NewState(&moved)
	}
	return state, nil
}

// MaxEmbodiment bounds an embodiment in bytes: it is stored with the result.
const MaxEmbodiment = 16 << 10

// embodied returns the embodiment that a result has, or nil for one that is too large, or is not
// {backendHint?: string|null, actions?: [object]}. Other members are left out.
func embodied(reported jsontext.Value) jsontext.Value {
	if reported == nil || len(reported) > MaxEmbodiment {
		return nil
	}
	var known struct {
		BackendHint jsontext.Value    `json:"backendHint,omitzero"`
		Actions     *[]map[string]any `json:"actions,omitzero"`
	}
	if err := json.Unmarshal(reported, &known); err != nil {
		return nil
	}
	if hint := known.BackendHint; hint != nil && hint.Kind() != '"' && hint.Kind() != 'n' {
		return nil
	}
	data, err := json.Marshal(known)
	if err != nil {
		return nil
	}
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return nil
	}
	return handoff.AppendCanonical(nil, tree)
}

// Refusal is the failure that a plugin's refusal is.
func Refusal(a Answer) *Failure {
	return &Failure{
		Reason: ReasonPluginRejected, Code: a.ReasonCode, Retryable: a.Retryable,
		Message: cmp.Or(clipped(a.Message), "The plugin refused the command."),
	}
}

// MaxMessage bounds what a plugin's words take in the run's events, in bytes.
const MaxMessage = 1024

func clipped(s string) string {
	if len(s) <= MaxMessage {
		return s
	}
	cut := MaxMessage
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return s[:cut] + "…"
}

// Silence is the failure of an attempt that got no definite answer.
func Silence(reached bool, last error) *Failure {
	f := &Failure{Reason: ReasonPluginTimeout, Retryable: true,
		Message: "The plugin gave no definite answer before the deadline."}
	if !reached {
		f.Reason, f.Message = ReasonPluginUnavailable,
			"No plugin is there to apply commands to the town."
	}
	if last != nil {
		f.Message += " Last trouble: " + clipped(last.Error())
	}
	return f
}
