package machine

import (
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
)

// Town is all data of a town in the log. It is a value; Step returns the next one. The zero value
// is a town that does not exist.
type Town struct {
	// Seq is the log sequence of the town's last message: the guard of its next one.
	Seq uint64
	// LoadedSeq is the log sequence at which this writer read the town. The index has the
	// instance's commits since then.
	LoadedSeq uint64
	State     town.State
	// Removed is the last state of a town that was removed, and nil otherwise. Its State is zero.
	Removed *town.State
	// Apply is the town's own binding, "" for the engine's default; Paused is the pause of the
	// town, nil if it is not paused; Pending is the command that is being applied, nil if there is
	// none.
	Apply   apply.Binding
	Paused  *messages.PausedBy
	Pending *apply.Pending
	// Policy selects the proposals that require an approval, nil for the engine's default.
	// Approvals are the proposals that wait for one, and the decisions.
	Policy    *approval.Policy
	Approvals approval.List
}
