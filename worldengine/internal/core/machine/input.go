package machine

import (
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
)

// Settings are the bounds and amounts of a world. Every member must be set.
type Settings struct {
	Rules *town.Rules // the amounts of the built-in rules
	// Apply and Policy are the binding and the approval policy of each town without its own.
	Apply  apply.Binding
	Policy approval.Policy
	// ApprovalTimeout bounds the wait of a proposal for its decision, and the validity of a
	// decision.
	ApprovalTimeout time.Duration
	// Plugin is the patience with a game; only Deadline, Attempts and Backoff count.
	Plugin apply.RetryPolicy
}

// IDs returns how many ids a step with the event may use.
func IDs(event Event) int {
	switch event.(type) {
	case *Handoff:
		return 15 // an approved retry that waited for its town, and the events of NextEvents
	case *Put, *Patch, *Reach:
		return 0
	}
	return 5 // the end of a pause, and the events of NextEvents for the next attempt
}

// RunOf returns the run of an event if the event's step needs the run's tail, else "". emitted is
// the number of the run's events that are in a record of the town.
func RunOf(t *Town, event Event) (runID string, emitted int64) {
	switch e := event.(type) {
	case *Handoff:
		if e.Recorded {
			return e.Run.RunID, 0
		}
	case *Wait:
		return e.Run.RunID, 0
	case *Abandon:
		return e.Run.RunID, 0
	case *Cancel:
		if t.Pending == nil || t.Pending.Run.RunID != e.Signal.RunID {
			return e.Signal.RunID, 0
		}
		return e.Signal.RunID, t.Pending.Emitted
	case *Outcome, *Attempt, *RunPause:
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
	// IDs are new UUIDs v4, as many as the function IDs returns. Drawn are the events' ids from an
	// earlier step whose record was not stored, because the town had changed.
	IDs   []string
	Drawn []runlog.DrawnID
	// Tail is the end of RunOf's run on the run's own subject; nil if RunOf returns none.
	Tail  *RunTail
	Event Event
}

// Event is a *Handoff, a *Put, a *Patch, a *Remove, a *Signal or a *Verdict. About a run that
// waits, it is a *Wait or an *Abandon. About the pending command, it is an
// *Outcome, an *Attempt, a *Reach, a *RunPause or a *Cancel.
type Event interface{ effect(s *step) (Output, error) }

// Handoff is the delivery of a valid handoff to a town that is not paused and has no pending
// command.
type Handoff struct {
	Handoff *handoff.Handoff
	// Sent are the bytes from which Handoff was parsed, for the record. If Sent is nil, the record
	// gets the bytes of Handoff.MarshalWire.
	Sent []byte
	// Prior is the receipt of the key, nil if the key is free, or if the delivery retries the
	// receipt's run.
	Prior *dedupe.Receipt
	// Run is the run of the delivery, and Begin its beginning. Recorded reports that the run's own subject
	// may have records of the run, since the handoff waited.
	Run      runevents.Identity
	Begin    Begin
	Recorded bool
	// RetryOf is the run that Run retries; nil if none.
	RetryOf *apply.RetryOf
	// DryRun asks for the answer by the built-in rules, whatever the town's binding is.
	DryRun bool
}

// Attributes are a town's members beside its state. A missing one stays unchanged.
type Attributes struct {
	Apply    apply.Binding    // "" if left out
	Approval *approval.Policy // nil if left out
}

// Put replaces the state whose hash is Expected with State. If Expected is "", it creates the town.
type Put struct {
	State    town.State
	Expected string
	Attributes
	// ActorID is the author: the user, or the user's role if NATS does not name the user.
	ActorID string
}

// Patch changes members of the state whose hash is Expected, by a JSON Merge Patch (RFC 7396).
type Patch struct {
	Patch    any
	Expected string
	Attributes
	ActorID string
}

// Remove removes a town with its pause, its binding and its waiting proposals; its keys stay
// consumed. The town is unknown until a put creates it anew, at its last day or later.
type Remove struct {
	// ActorID is who removes the town: the user, or the user's role if NATS does not name the user.
	ActorID string
}
