package apply

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/internal/kit/phrase"
)

// Errors of plugins and consoles. A definite answer is never an error: it is an Answer.
var (
	// ErrUnavailable means that the command reached no plugin and no console, so it is not applied. Ask
	// again.
	ErrUnavailable = errors.New("apply: the command reached no plugin or console")
	// ErrInDoubt means that the command may have arrived, and may be applied. A plugin, which knows the ids
	// of its applications, can be asked again with the same id. A server console cannot: the console
	// would apply the command twice.
	ErrInDoubt = errors.New("apply: it is not known whether the command is applied")
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

// MayBeApplied reports whether a command that failed for a reason may nevertheless be applied in
// the game.
func MayBeApplied[R ~string](reason R) bool {
	switch handoff.ReasonCode(reason) {
	case ReasonPluginTimeout, ReasonPluginStateInvalid, ReasonRCONInDoubt:
		return true
	}
	return false
}

// MayBeRetried reports whether an operator may retry a run that failed for a reason: nothing reached a game. Every
// other end of a run is final. The console's page has the same list (rows.js).
func MayBeRetried[R ~string](reason R) bool {
	return handoff.ReasonCode(reason) == ReasonPluginUnavailable
}

// Console applies commands without a plugin. It does not know the ids of commands: a command that
// may have been sent must not be applied again.
type Console interface {
	// Login prepares the console for a command. Of the Session one method must be called, once.
	// Until then the console is busy. A command that the console refuses needs no session. An error is
	// an ErrUnavailable.
	Login(ctx context.Context, c *Command) (s Session, refused *Answer, err error)
}

// Session is a console that is ready for a command.
type Session interface {
	// Send sends the command. After an error other than ErrUnavailable the command may be applied.
	Send(ctx context.Context) (Answer, error)
	// Close sends nothing.
	Close()
}

// RetryPolicy is the patience with plugins and consoles. Its members are flags of handoffd. A zero value
// means the default, which stands after the semicolon.
type RetryPolicy struct {
	// Deadline bounds one logical attempt; 10 s.
	Deadline time.Duration `help:"Time limit of one attempt to apply a command." default:"10s"`
	// Attempts is the number of logical attempts before the handoff fails; 3.
	Attempts int64 `help:"Number of attempts to apply a command before its handoff fails." default:"3"`
	// Backoff is the pause before the second attempt; it doubles with each; 1 s.
	Backoff time.Duration `help:"Pause before the second attempt; it doubles with each." default:"1s"`
	// Resend is the silence after which an attempt sends its request again; 2 s.
	Resend time.Duration `help:"Silence after which the engine sends a plugin the same request again." default:"2s"`
	// Absence is the policy for commands while no plugin is subscribed; AbsenceWait.
	Absence AbsencePolicy `name:"absent" help:"Policy for a command while its town has no plugin, or no console that can be reached: it waits until one is there (wait), or fails after its attempts (fail)." enum:"wait,fail" default:"wait"`
}

// AbsencePolicy is the policy for a command whose town has no plugin.
type AbsencePolicy string

// The policies.
const (
	// AbsenceWait: the attempt's time stands still until a plugin is there. The run can be cancelled
	// meanwhile.
	AbsenceWait AbsencePolicy = "wait"
	// AbsenceFail: the attempts run out, and the handoff fails with PLUGIN_UNAVAILABLE.
	AbsenceFail AbsencePolicy = "fail"
)

// AbsenceGrace is the least time that an attempt has left when an absent plugin returns; 0 if an
// absence does not prolong the attempt.
func (p *RetryPolicy) AbsenceGrace() time.Duration {
	if p.Absence == AbsenceWait {
		return p.Deadline
	}
	return 0
}

// WithDefaults returns the policy with the defaults of its zero members.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	p.Deadline = cmp.Or(p.Deadline, 10*time.Second)
	p.Attempts = cmp.Or(p.Attempts, 3)
	p.Backoff = cmp.Or(p.Backoff, time.Second)
	p.Resend = cmp.Or(p.Resend, 2*time.Second)
	p.Absence = cmp.Or(p.Absence, AbsenceWait)
	return p
}

// maxBackoff bounds the pause between two attempts.
const maxBackoff = time.Minute

// BackoffAfter is the pause after an attempt, counted from 1.
func (p *RetryPolicy) BackoffAfter(attempt int64) time.Duration {
	pause := p.Backoff
	for ; attempt > 1 && pause < maxBackoff; attempt-- {
		pause *= 2
	}
	return min(pause, maxBackoff)
}

// AttemptResult is the end of an attempt to apply a command.
type AttemptResult struct {
	// At is the time of the end by the producer's clock.
	At       time.Time
	Attempt  int64
	Applied  bool
	Snapshot jsontext.Value // the state that was reported; nil for the expected one
	// Embodiment is the plugin's, unvalidated; nil for none.
	Embodiment jsontext.Value
	Artifacts  Artifacts
	Failure    *Failure // if it was not applied
	// Reached reports whether a request may have reached a plugin or a console.
	Reached bool
}

// Result returns the end of an attempt with a definite answer.
func (a *Answer) Result() AttemptResult {
	if a.Status != Applied {
		return AttemptResult{Failure: Refusal(*a), Reached: true}
	}
	return AttemptResult{
		Applied: true, Snapshot: a.Snapshot, Embodiment: a.Embodiment,
		Artifacts: artifactsOf(a.Artifacts), Reached: true,
	}
}

// ConsoleResult returns the end of a console's attempt. ErrUnavailable is the only error after
// which the command was not applied.
func ConsoleResult(answer Answer, err error) AttemptResult {
	switch {
	case NotApplied(err):
		return AttemptResult{Failure: &Failure{
			Reason: ReasonPluginUnavailable, Message: clipped(phrase.Sentence(err)), Retryable: true,
		}}
	case err != nil:
		return ConsoleInDoubt(phrase.Sentence(err))
	}
	return answer.Result()
}

// NotApplied reports whether err means that a console did not run the command.
func NotApplied(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInDoubt)
}

// ConsoleInDoubt returns the failure of an attempt whose command the console may have run.
func ConsoleInDoubt(why string) AttemptResult {
	return AttemptResult{Reached: true, Failure: &Failure{Reason: ReasonRCONInDoubt, Message: clipped(why)}}
}

// Reach is whether a request may have reached a game. The set is closed.
type Reach int

const (
	// Unreached: no request has arrived, and none is on its way.
	Unreached Reach = iota
	// ReachUnknown: a request is on its way, and it is known soon whether it arrives.
	ReachUnknown
	// MayBeReached: a request may have arrived.
	MayBeReached
)

// Refusal returns the failure of a plugin's refusal.
func Refusal(a Answer) *Failure {
	return &Failure{
		Reason: ReasonPluginRejected, Code: a.ReasonCode, Retryable: a.Retryable,
		Message: cmp.Or(clipped(a.Message), "The plugin refused the command."),
	}
}

// MaxMessage bounds a plugin's words in the run's events, in bytes.
const MaxMessage = 1024

func clipped(s string) string {
	if len(s) <= MaxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:MaxMessage], "") + "…"
}

// NoAnswer is the failure of an attempt that got no definite answer.
func NoAnswer(reached bool, last error) *Failure {
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
