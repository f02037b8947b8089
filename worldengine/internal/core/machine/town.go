package machine

import (
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/messages"
)

// Town is all data of a town in the log. It is a value; Step returns the next Town. The zero value
// is a town that does not exist.
type Town struct {
	// Seq is the log sequence of the town's last message: the guard of its next one.
	Seq uint64
	// LoadedSeq is the log sequence at which this writer read the town. The index has this
	// writer's later commits.
	LoadedSeq uint64
	State     town.State
	// Removed is the last state of a removed town, whose State is zero; else nil.
	Removed *town.State
	// Binding is the town's own, "" for the engine's default. Paused is the pause of the
	// town, nil if it is not paused. Pending is the command that is being applied, nil if there is
	// none.
	Binding apply.Binding
	Paused  *messages.PausedBy
	Pending *apply.Pending
	// Policy selects the proposals that require an approval, nil for the engine's default.
	// Approvals are the proposals that wait for an approval, and the decisions.
	Policy    *approval.Policy
	Approvals approval.List
}

// LastState returns the state in the town's last record; for a removed town, the state before the removal.
func (t *Town) LastState() *town.State {
	if t.Removed != nil {
		return t.Removed
	}
	return &t.State
}

// Town returns the town after a record, which holds state, at the log sequence seq.
func (rec *Record) Town(seq uint64, state town.State) Town {
	t := Town{
		Seq: seq, LoadedSeq: seq, State: state, Binding: rec.Binding, Paused: rec.Paused,
		Pending: rec.Pending, Policy: rec.Policy, Approvals: rec.Approvals,
	}
	if rec.Removed {
		t.State, t.Removed = town.State{}, &state
	}
	return t
}
