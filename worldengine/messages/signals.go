package messages

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Signal is the request of control.pause, control.resume, control.get, run.cancel and run.retry; a
// verb accepts the members that its schema names.
type Signal struct {
	TownID         string `json:"townId,omitzero"`
	RunID          string `json:"runId,omitzero"`
	ActorID        string `json:"actorId,omitzero"`
	Reason         string `json:"reason,omitzero"`
	DrainTimeoutMs int64  `json:"drainTimeoutMs,omitzero"`
	Force          bool   `json:"force,omitzero"`
}

// The statuses of a Control, and its substatus while commands are still being applied.
const (
	Running  = "RUNNING"
	Paused   = "PAUSED"
	Draining = "DRAINING"
)

// Control is whether a town, or the whole world, is paused.
//
//schema:control-reply.v1
type Control struct {
	// The town; left out for the whole world.
	TownID string `json:"townId,omitzero" schema:"id"`
	// PAUSED or RUNNING. A town is PAUSED when the world is.
	Status string `json:"status" schema:"one=PAUSED|RUNNING"`
	// DRAINING while commands are still being applied after a pause; left out otherwise.
	Substatus string `json:"substatus,omitzero" schema:"one=DRAINING"`
	// How many commands are being applied outside the engine at this moment; for the world, only
	// the commands of the server that answers.
	Applying int `json:"applying"`
	// The state of the pause in a sentence, for people.
	Message string `json:"message,omitzero"`
	// Who paused the town or the world, why and when; left out if nothing is paused.
	PausedBy *PausedBy `json:"pausedBy,omitzero"`
	// The run of the signal that this reply answers; the run's events record the signal. Left out
	// if there was no signal.
	SignalID string `json:"signalId,omitzero" schema:"id"`
}

// PausedBy is the pause of a town or of the world by an operator.
type PausedBy struct {
	// The run of the signal.
	SignalID string `json:"signalId"`
	// Who gave the signal.
	ActorID string `json:"actorId"`
	// The reason, if one was given.
	Reason string `json:"reason,omitzero"`
	// When it was paused.
	At time.Time `json:"at"`
	// How many milliseconds after the pause an alert is raised if commands are still being applied.
	DrainTimeoutMs int64 `json:"drainTimeoutMs"`
}

// Draining reports whether the pause still gives commands time to be applied.
func (p *PausedBy) Draining(now time.Time) bool {
	return now.Before(p.At.Add(time.Duration(p.DrainTimeoutMs) * time.Millisecond))
}

// Retried is the run in which the handoff of another run is tried again.
//
//schema:run-retry-reply.v1
type Retried struct {
	// The id of the town.
	TownID string `json:"townId" schema:"id"`
	// The handoff that is tried again.
	HandoffID string `json:"handoffId" schema:"handoffId"`
	// The run that is retried.
	RetryOf string `json:"retryOf" schema:"id"`
	// The new run, in which the handoff is tried again.
	RunID string `json:"runId" schema:"id"`
	// The execution-result.v1 of the new run; left out while the handoff waits or its command is
	// being applied; run.get has it later.
	Result jsontext.Value `json:"result,omitzero" schema:"ref=execution-result.v1"`
}

// ApprovalList asks for a page of the proposals that wait for a person's approval, the oldest
// first.
//
//schema:approval-list-request.v1
//schema:example {}
//schema:example {"townId": "town-threatened", "limit": 20}
type ApprovalList struct {
	// Only the proposals of this town; of all towns if left out.
	TownID string `json:"townId,omitzero" schema:"id"`
	// Whether to list instead the proposals that no longer wait, the newest first; false if left
	// out.
	Closed bool `json:"closed,omitzero"`
	// Continue after this place: next of the previous page. If left out, the list begins at its
	// first proposal.
	After string `json:"after,omitzero" schema:"id"`
	// The largest number of proposals to answer with; the server chooses if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=200"`
}

// Approval is a proposal that waits for a person, or is approved and waits for its handoff.
type Approval struct {
	// The id of the town.
	TownID string `json:"townId" schema:"id"`
	// The id of the handoff; approval.decide takes it.
	HandoffID string `json:"handoffId" schema:"handoffId"`
	// The SHA-256 of the handoff as the server stores it. approval.decide takes it beside the id,
	// since several handoffs may have the same id.
	HandoffHash string `json:"handoffHash" schema:"hash"`
	// waiting (for a decision) or approved (the handoff has not been sent again yet). A proposal
	// that waits no longer is denied, used (approved and accepted for execution), stale (the town
	// has changed) or expired.
	Status string `json:"status" schema:"id"`
	// The run that carried the handoff out or, until then, the run that asked for the approval;
	// left out if the log does not keep it.
	RunID string `json:"runId,omitzero" schema:"id"`
	// The command of the handoff.
	Command string `json:"command" schema:"id"`
	// The proposal.v2, as the agent made it.
	Proposal jsontext.Value `json:"proposal" schema:"object"`
	// When the approval was asked for.
	At string `json:"at" schema:"id"`
	// When the proposal, or its approval, expires.
	Expires string `json:"expiresAt" schema:"id"`
	// Who approved it; left out until then.
	DecidedBy string `json:"decidedBy,omitzero"`
	// When it was approved; left out until then.
	DecidedAt string `json:"decidedAt,omitzero" schema:"id"`
	// The reason of the decision; left out if the person gave none.
	Reason string `json:"reason,omitzero"`
	// The changes in the town that the built-in rules expect of the command. A game may make other
	// changes.
	Expected []ExpectedChange `json:"expected"`
	// The reason code with which the built-in rules expect the command to fail; left out if they
	// expect no failure.
	ExpectedFailure handoff.ReasonCode `json:"expectedFailure,omitzero" schema:"id"`
	// How many expected changes are missing from expected; left out if none are.
	ExpectedLeftOut int `json:"expectedLeftOut,omitzero" schema:"min=1"`
}

// ExpectedChange is a value of a snapshot that a command is expected to change.
type ExpectedChange struct {
	// The place of the value, a JSON Pointer.
	Path string `json:"path"`
	// The present value; left out if there is none, or if it is large.
	From jsontext.Value `json:"from,omitzero"`
	// The value after the command; left out if there is none, or if it is large.
	To jsontext.Value `json:"to,omitzero"`
	// The size of the present value in bytes of JSON, if it is large.
	FromBytes int `json:"fromBytes,omitzero" schema:"min=1"`
	// The size of the value after the command in bytes of JSON, if it is large.
	ToBytes int `json:"toBytes,omitzero" schema:"min=1"`
}

// Approvals is a page of the proposals that wait for a person's approval, or are approved and
// wait for their handoff, the oldest first.
//
//schema:approval-list-reply.v1
type Approvals struct {
	// The proposals of this page.
	Approvals []*Approval `json:"approvals"`
	// The value of after for the next page; left out on the last page.
	Next string `json:"next,omitzero" schema:"id"`
}

// The decisions of an ApprovalDecide.
const (
	Approve = "approve"
	Reject  = "reject"
)

// ApprovalDecide approves or denies a proposal that waits for a person's approval.
//
//schema:approval-decide-request.v1
type ApprovalDecide struct {
	// The id of the handoff.
	HandoffID string `json:"handoffId" schema:"handoffId"`
	// The town in which the handoff waits.
	TownID string `json:"townId" schema:"id"`
	// The handoffHash, from approval.list, of the handoff that the person saw: no other handoff
	// with the same id is approved or denied. If left out, only one handoff with the id may wait in
	// the town.
	HandoffHash string `json:"handoffHash,omitzero" schema:"hash"`
	// approve: the same handoff is executed when it is sent again. reject: it is refused, with
	// the reason.
	Decision string `json:"decision" schema:"one=approve|reject"`
	// The reason, for the agent and the events: at most 500 characters, may be empty.
	Reason string `json:"reason" schema:"chars=0-500"`
	// Who decides, if the server has no access control; "operator" if left out.
	ActorID string `json:"actorId,omitzero" schema:"chars=1-200"`
	// Whether the stored handoff is executed at once, so that its agent need not send it again;
	// false if left out.
	Submit bool `json:"submit,omitzero"`
}

// Decided is the stored decision about a proposal, with the result of the handoff if the request
// had it submitted.
//
//schema:approval-decide-reply.v1
type Decided struct {
	// The id of the town.
	TownID string `json:"townId" schema:"id"`
	// The id of the handoff.
	HandoffID string `json:"handoffId" schema:"handoffId"`
	// approve or reject.
	Decision string `json:"decision" schema:"one=approve|reject"`
	// The run of the decision.
	SignalID string `json:"signalId" schema:"id"`
	// Who decided.
	ActorID string `json:"actorId" schema:"id"`
	// Why; left out if it is empty.
	Reason string `json:"reason,omitzero"`
	// When it was decided.
	At string `json:"at" schema:"id"`
	// The run of the submitted handoff, even while it has no result, or the earlier run in which
	// the handoff was accepted; left out if neither is known.
	RunID string `json:"runId,omitzero" schema:"id"`
	// The execution-result.v1 of the handoff that was submitted.
	Result jsontext.Value `json:"result,omitzero" schema:"ref=execution-result.v1"`
	// Why there is no result although the handoff was to be submitted. The decision stands: send
	// the handoff again, or have the same person send the same decision again.
	NotSubmitted *NotSubmitted `json:"notSubmitted,omitzero"`
}

// NotSubmitted is an error beside an answer.
type NotSubmitted struct {
	// The code of the error that the handoff would have got.
	Code wire.Code `json:"code" schema:"id"`
	// The meaning of the code, for people.
	Message string `json:"message"`
}
