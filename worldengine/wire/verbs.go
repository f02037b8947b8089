package wire

// ServiceName is the name of the NATS micro service that every verb is an endpoint of.
const ServiceName = "worldengine"

// Metadata of the service, which discovery ($SRV.INFO) returns.
const (
	// WorldMetadata is the name of the world.
	WorldMetadata = "world"
	// OperatorKeyMetadata is the absolute name of the file, on the server's machine, with the NKey
	// seed of the local operator. A server that has no such file leaves it out.
	OperatorKeyMetadata = "operatorKey"
)

// Verb is what a client can ask of the service: the last part of a request's subject.
type Verb string

// The verbs. docs/contracts.md has their requests and replies.
const (
	// Handoff submits an execution-handoff.v1 and returns its execution-result.v1.
	Handoff Verb = "handoff"
	// TownGet returns a town's state.
	TownGet Verb = "town.get"
	// TownHistory returns a page of the revisions of a town, the newest first.
	TownHistory Verb = "town.history"
	// TownList returns a page of the towns.
	TownList Verb = "town.list"
	// TownPut creates a town, or replaces its state.
	TownPut Verb = "town.put"
	// TownPatch changes members of a town's state.
	TownPatch Verb = "town.patch"
	// ResultGet returns the result of an accepted handoff by its idempotency key.
	ResultGet Verb = "result.get"
	// RunGet returns a run's projected state.
	RunGet Verb = "run.get"
	// RunList returns a page of the runs, the newest first.
	RunList Verb = "run.list"
	// RunEvents returns a page of a run's events.
	RunEvents Verb = "run.events"
	// RunAppend stores run events of other producers.
	RunAppend Verb = "run.append"
	// RunCancel ends a run that waits.
	RunCancel Verb = "run.cancel"
	// RunRetry tries the handoff of a run again that failed since no plugin or console could be
	// reached.
	RunRetry Verb = "run.retry"
	// ControlPause pauses a town or the world.
	ControlPause Verb = "control.pause"
	// ControlResume ends a pause.
	ControlResume Verb = "control.resume"
	// ControlGet returns whether a town or the world is paused.
	ControlGet Verb = "control.get"
	// AlertList returns a page of the alerts, the newest first.
	AlertList Verb = "alert.list"
	// AlertAck acknowledges an alert.
	AlertAck Verb = "alert.ack"
	// ApprovalList returns a page of the proposals that wait for a person's approval.
	ApprovalList Verb = "approval.list"
	// ApprovalDecide approves or denies one of them.
	ApprovalDecide Verb = "approval.decide"
	// WhoAmI returns what the sender may do.
	WhoAmI Verb = "whoami"
)

// Verbs returns every verb, in the order of docs/contracts.md. The caller may change the slice.
func Verbs() []Verb {
	return []Verb{
		Handoff, TownGet, TownHistory, TownList, TownPut, TownPatch, ResultGet, RunGet,
		RunList, RunEvents, RunAppend, RunCancel, RunRetry,
		ControlPause, ControlResume, ControlGet, AlertList, AlertAck,
		ApprovalList, ApprovalDecide, WhoAmI,
	}
}

// Changes reports whether a repeated request can be refused because the first one was carried out.
// A client that got no answer, or a 503, must look before it repeats such a request. A handoff and
// a run.append are not among them: their keys make a repetition safe.
func (v Verb) Changes() bool {
	switch v {
	case TownPut, TownPatch, RunCancel, RunRetry, ControlPause, ControlResume, ApprovalDecide:
		return true
	}
	return false
}
