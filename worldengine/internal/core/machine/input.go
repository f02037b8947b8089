package machine

import (
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
)

// Settings are the bounds and amounts of a world. Set every member. Only fsck, which repeats a step from its record,
// may leave the durations zero: it takes them from the record.
type Settings struct {
	Rules *town.Rules // the amounts of the built-in rules
	// Binding and ApprovalPolicy hold for each town without its own.
	Binding        apply.Binding
	ApprovalPolicy approval.Policy
	// ApprovalTimeout bounds the wait of a proposal for its decision, and the validity of a
	// decision.
	ApprovalTimeout time.Duration
	// Retry bounds the attempts to have a game apply a command; only Deadline, Attempts and Backoff count.
	Retry apply.RetryPolicy
}

// CountIDs returns how many ids a step with the event may use.
func CountIDs(event Event) int {
	switch event.(type) {
	case *Judge:
		return 15 // an approved retry that waited for its town, and the events of NextEvents
	case *Put, *Patch, *RecordReach:
		return 0
	}
	return 5 // the end of a pause, and the events of NextEvents for the next attempt
}

// TailRun returns the run of an event if the event's step needs the run's tail, else "". emitted is
// the number of the run's events that are in a record of the town.
func TailRun(t *Town, event Event) (runID string, emitted int64) {
	switch e := event.(type) {
	case *Judge:
		if e.Recorded {
			return e.Run.RunID, 0
		}
	case *Wait:
		return e.Run.RunID, 0
	case *CancelWaiting:
		return e.Run.RunID, 0
	case *Cancel:
		if t.Pending == nil || t.Pending.Run.RunID != e.Signal.RunID {
			return e.Signal.RunID, 0
		}
		return e.Signal.RunID, t.Pending.Emitted
	case *EndAttempt, *RecordAttempt, *PauseRun:
		if t.Pending != nil {
			return t.Pending.Run.RunID, t.Pending.Emitted
		}
	}
	return "", 0
}

// Input is one event of a town.
type Input struct {
	TownID string // "" for the world
	At     time.Time
	// IDs are new UUIDs v4, as many as CountIDs returns. Drawn are the events' ids from an
	// earlier step whose record was not stored, because the town had changed.
	IDs   []string
	Drawn []runlog.DrawnID
	// Tail is the end of the run of TailRun on the run's own subject; nil if TailRun returns none.
	Tail  *RunTail
	Event Event
}

// Event is a *Judge, a *Put, a *Patch, a *Remove, a *Signal or a *RecordSignal. About a run that
// waits, it is a *Wait or a *CancelWaiting. About the pending command, it is an
// *EndAttempt, a *RecordAttempt, a *RecordReach, a *PauseRun or a *Cancel.
type Event interface{ effect(s *step) (Output, error) }
