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

// Input is one event of a town.
type Input struct {
	TownID string // "" for the world
	At     time.Time
	// IDs are new UUIDs v4, as many as MaxIDs returns. Drawn are the events' ids from an
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
type Event interface {
	effect(s *step) (Output, error)
	// MaxIDs returns how many ids the event's step may draw.
	MaxIDs() int
	// TailRun returns the run whose tail the event's step in a town needs; "" if it needs none. emitted is the number
	// of the run's events that are in a record of the town.
	TailRun(t *Town) (runID string, emitted int64)
}

// maxRunIDs is how many ids the step of an event of a run may draw, for the end of a pause, and for the events of
// NextEvents for the next attempt.
const maxRunIDs = 5

// pendingTail returns the run of the pending command as TailRun does.
func pendingTail(t *Town) (runID string, emitted int64) {
	if t.Pending == nil {
		return "", 0
	}
	return t.Pending.Run.RunID, t.Pending.Emitted
}
