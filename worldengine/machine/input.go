package machine

import (
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/town"
)

// Settings are the bounds and amounts of a world, beside its towns. Every member must be set.
type Settings struct {
	Rules *town.Rules // the amounts of the built-in rules
	// Apply is the binding, and Policy the approvals, of towns without their own.
	Apply  apply.Binding
	Policy approval.Policy
	// ApprovalTimeout bounds the wait of a proposal for its decision, and the validity of a
	// decision.
	ApprovalTimeout time.Duration
	// Plugin is the patience with a game; only Deadline, Attempts and Backoff count.
	Plugin apply.Policy
}

// IDs returns the number of ids that an event's step may draw.
func IDs(event Event) int {
	switch event.(type) {
	case *Handoff:
		return 15 // a run that waited for its town, approved, retried, with the events to come
	case *Put, *Patch, *Arrival:
		return 0
	}
	return 5 // the events to come of another attempt, after the end of a pause
}

// RunOf returns the run of an event of a town, and how many of the run's events are in a record of
// the town, if the step needs the run's tail; else "".
func RunOf(t *Town, event Event) (runID string, emitted int64) {
	switch e := event.(type) {
	case *Wait:
		return e.Run.RunID, 0
	case *Close:
		return e.Run.RunID, 0
	case *Open:
		return e.Run.RunID, e.Emitted
	case *Abandon:
		return e.Run.RunID, 0
	case *Outcome, *Attempt, *Hold, *Cancel:
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
	Drawn []runevents.DrawnID
	// Tail is the end, on the run's own subject, of the event's run: see RunOf.
	Tail  *RunTail
	Event Event
}

// Event is a *Handoff, a *Put, a *Patch, a *Remove, a *Signal or a *Verdict; of a run that waits, a *Wait, a
// *Close, an *Open or an *Abandon; and of the pending command, an *Outcome, an *Attempt, an *Arrival, a
// *Hold or a *Cancel.
type Event interface{ event() }

func (*Handoff) event() {}
func (*Put) event()     {}
func (*Patch) event()   {}
func (*Remove) event()  {}
func (*Signal) event()  {}

// Handoff is the delivery of a valid handoff to a town that is neither paused nor applies a
// command.
type Handoff struct {
	Handoff *handoff.Handoff
	// Sent are the bytes that Handoff was parsed of, for the record; nil for its MarshalWire.
	Sent []byte
	// Prior is the receipt of the key, nil if the key is free, or if the handoff is a retry of the
	// receipt's run.
	Prior *dedupe.Receipt
	// Run is the run of the delivery, Next the runSeq of its next event, Begin its beginning.
	Run   runevents.Identity
	Next  int64
	Begin Begin
	// RetryOf is the run that this one retries; nil if none.
	RetryOf *apply.RetryOf
	// DryRun: the answer is the one that the built-in rules expect, whoever applies the command.
	DryRun bool
}

// Attributes are a town's members beside its state. A missing one stays unchanged.
type Attributes struct {
	Apply    apply.Binding    // "" if left out
	Approval *approval.Policy // which types of proposals take a person's approval
}

// Put replaces the state of the hash Expected by State; with "" it creates the town.
type Put struct {
	State    town.State
	Expected string
	Attributes
	// ActorID is the author: the user, or the role of one whom NATS does not name.
	ActorID string
}

// Patch changes members of the state of the hash Expected: Patch is a JSON Merge Patch (RFC 7396).
type Patch struct {
	Patch    any
	Expected string
	Attributes
	ActorID string
}

// Remove removes a town: it is unknown until a put makes it anew, at a day that is not before its
// last one. Its pause, its binding and its waiting proposals go with it; its keys stay consumed.
type Remove struct {
	// ActorID is who removes the town: the user, or the role of one whom NATS does not name.
	ActorID string
}
