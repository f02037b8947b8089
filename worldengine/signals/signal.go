package signals

import (
	"cmp"
	"time"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// Signal is an operator's signal.
type Signal struct {
	Kind lifecycle.SignalKind
	// TownID is the town that is paused or resumed; "" for the whole world.
	TownID string
	// RunID is the run that is cancelled or retried, and Force says to do so although a game may
	// have its command.
	RunID string
	Force bool
	// HandoffID is the handoff that is approved or denied, and HandoffHash the SHA-256 of the bytes
	// that the person was shown, "" where the person did not say.
	HandoffID, HandoffHash string
	// ActorID names the operator, Reason is the operator's; both stand in the events. "operator"
	// and "".
	ActorID, Reason string
	// DrainTimeout is how long a pause waits for the commands that are being applied before it
	// raises PAUSE_DRAIN_TIMEOUT; 5 minutes.
	DrainTimeout time.Duration
}

// DefaultDrainTimeout is that of ExecutionSemantics v1, section 6.
const DefaultDrainTimeout = 5 * time.Minute

// WithDefaults returns the signal with the default of each member that is not given.
func (s Signal) WithDefaults() Signal {
	s.ActorID = cmp.Or(s.ActorID, "operator")
	s.DrainTimeout = cmp.Or(s.DrainTimeout, DefaultDrainTimeout)
	return s
}

// PausedBy returns what a pause stores with its town or the world, and nil for a resumption.
func (s *Signal) PausedBy(signalID string, now time.Time) *commitlog.PausedBy {
	if s.Kind == lifecycle.SignalResume {
		return nil
	}
	return &commitlog.PausedBy{
		SignalID: signalID, ActorID: s.ActorID, Reason: s.Reason, At: now.UTC(),
		DrainTimeoutMs: s.DrainTimeout.Milliseconds(),
	}
}

// Refusal returns the code and the reason of the refusal of a pause or resumption while paused
// holds, and "" where there is none.
func (s *Signal) Refusal(paused *commitlog.PausedBy) (code wire.Code, message string) {
	switch {
	case s.Kind == lifecycle.SignalPause && paused != nil:
		return wire.CodeAlreadyPaused, "it is paused already, by " + paused.ActorID
	case s.Kind == lifecycle.SignalResume && paused == nil:
		return wire.CodeNotPaused, "it is not paused"
	}
	return "", ""
}

// RefusedError refuses a signal. The refusal is recorded: SignalID is its run.
type RefusedError struct {
	// Code is why: that of the error reply.
	Code     wire.Code
	SignalID string
	Message  string
}

// Error returns the reason.
func (e *RefusedError) Error() string { return "worldengine: " + e.Message }
