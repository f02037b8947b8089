package apply

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Errors of plugins and consoles. A definite answer is never an error: it is a GameAnswer.
var (
	// ErrUnavailable means that the command reached no plugin and no console, so it is not applied. Ask
	// again.
	ErrUnavailable = errors.New("apply: the command reached no plugin or console")
	// ErrInDoubt means that the command may have arrived, and may be applied. A plugin, which knows the ids
	// of its applications, can be asked again with the same id. A server console cannot: the console
	// would apply the command twice.
	ErrInDoubt = errors.New("apply: it is not known whether the command is applied")
)

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
	// MayHaveReached reports whether a request may have reached a plugin or a console.
	MayHaveReached bool
}

// Result returns the end of an attempt with a definite answer.
func (a *GameAnswer) Result() AttemptResult {
	if a.Status != Applied {
		return AttemptResult{Failure: refusalFailure(*a), MayHaveReached: true}
	}
	return AttemptResult{
		Applied: true, Snapshot: a.Snapshot, Embodiment: a.Embodiment,
		Artifacts: artifactsOf(a.Artifacts), MayHaveReached: true,
	}
}

// Reach is whether a request may have reached a game. The set is closed.
type Reach int

const (
	// Unreached: no request has arrived, and none is on its way.
	Unreached Reach = iota
	// ReachUnknown: a request is on its way, and it is known soon whether it arrives.
	ReachUnknown
	// MayHaveReached: a request may have arrived.
	MayHaveReached
)

// refusalFailure returns the failure of a plugin's refusal.
func refusalFailure(a GameAnswer) *Failure {
	return &Failure{
		Reason: ReasonPluginRejected, Code: a.ReasonCode, Retryable: a.Retryable,
		Message: cmp.Or(truncated(a.Message), "The plugin refused the command."),
	}
}

// MaxMessage bounds a plugin's words in the run's events, in bytes.
const MaxMessage = 1024

func truncated(s string) string {
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
		f.Reason, f.Message = ReasonGameUnavailable,
			"No plugin is there to apply commands to the town."
	}
	if last != nil {
		f.Message += " Last trouble: " + truncated(last.Error())
	}
	return f
}
