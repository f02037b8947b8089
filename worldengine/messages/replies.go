package messages

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Error is the body of every error reply.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is an error. Code is a wire.Code, and Details are the places in the request.
type ErrorDetail struct {
	Code    string              `json:"code"`
	Message string              `json:"message"`
	Details []schemas.Violation `json:"details"`
}

// ErrorBody returns the body of an error reply.
func ErrorBody(code, message string, details []schemas.Violation) []byte {
	data, err := json.Marshal(Error{ErrorDetail{code, message, details}})
	if err != nil { // only text that is not UTF-8
		return []byte(
			`{"error":{"code":"UNKNOWN","message":"the error cannot be written","details":[]}}`)
	}
	return data
}

// TownSummary is a town without its snapshot. Revision is the log sequence of its last change.
type TownSummary struct {
	TownID        string `json:"townId"`
	SnapshotHash  string `json:"snapshotHash"`
	DecisionEpoch int64  `json:"decisionEpoch"`
	Revision      uint64 `json:"revision"`
	// Apply is who applies commands: local, plugin or rcon.
	Apply string `json:"apply"`
	// PendingRunID is the run whose command is being applied, "" for none.
	PendingRunID string `json:"pendingRunId,omitzero"`
	// Paused reports whether the town itself is paused; the world may be.
	Paused bool `json:"paused,omitzero"`
	// PluginAbsentSince is since when the town has had no plugin, as RFC 3339; "" if it had one
	// when it was last asked.
	PluginAbsentSince string `json:"pluginAbsentSince,omitzero"`
}

// ListedTown is a town in a list.
type ListedTown struct {
	TownSummary `json:",inline"`
	// Waiting is how many proposals wait for a person's approval.
	Waiting int `json:"waiting,omitzero"`
	// InDoubt means that the town is as it was before a command that failed, and that may be applied.
	InDoubt bool `json:"inDoubt,omitzero"`
}

// Towns is the reply of town.list.
type Towns struct {
	Towns []ListedTown `json:"towns"`
	Next  string       `json:"next,omitzero"` // the After of the next page; "" on the last
	// Total is how many towns the user may read, and Found how many of them pass the filters.
	Total int `json:"total"`
	Found int `json:"found"`
}

// Town is the reply of town.get, town.put and town.patch.
type Town struct {
	TownSummary `json:",inline"`
	Snapshot    *town.Snapshot `json:"snapshot"`
	// Approval is which types of proposals take a person's approval.
	Approval []handoff.ProposalType `json:"approval,omitempty"`
	// PluginAbsent has more about PluginAbsentSince; nil if there is none.
	PluginAbsent *AbsentPlugin `json:"pluginAbsent,omitzero"`
	// LastFailure is the last handoff that failed on this state, nil if none did.
	LastFailure *Failure `json:"lastFailure,omitzero"`
}

// Failure is a handoff that was accepted and could not be applied.
type Failure struct {
	HandoffID  string             `json:"handoffId"`
	ReasonCode handoff.ReasonCode `json:"reasonCode"`
	At         string             `json:"at"`
}

// Revision is one change of a town, and the state that it left.
type Revision struct {
	// Revision is the log sequence of the change; At is when the log stored it.
	Revision uint64 `json:"revision"`
	At       string `json:"at"`
	// Cause is the kind of the log's record.
	Cause string `json:"cause"`
	// RunID, ActorID and Command name the run, who asked for it or put the state, and the command;
	// "" if the cause has none. Status and Reason are of the result, "" without one.
	RunID   string             `json:"runId,omitzero"`
	ActorID string             `json:"actorId,omitzero"`
	Command string             `json:"command,omitzero"`
	Status  handoff.Status     `json:"status,omitzero"`
	Reason  handoff.ReasonCode `json:"reasonCode,omitzero"`
	// Epoch and Hash are of the state after the change.
	Epoch int64  `json:"epoch"`
	Hash  string `json:"hash"`
}

// Change is a revision and its town, "" in the history of one town.
type Change struct {
	TownID   string `json:"townId,omitzero"`
	Revision `json:",inline"`
}

// History is the reply of town.history, the newest revision first.
type History struct {
	TownID    string   `json:"townId,omitzero"`
	Revisions []Change `json:"revisions"`
	Next      uint64   `json:"next,omitzero"` // the Before of the next page; 0 on the last
}

// Result is the reply of result.get.
type Result struct {
	RunID  string         `json:"runId"`
	Result jsontext.Value `json:"result"`
}

// Timing is how long a run took from its client's view.
type Timing struct {
	// ArrivedAt is when the handoff or the signal arrived, before it waited for anything.
	ArrivedAt string `json:"arrivedAt,omitzero"`
	// TookMs is from ArrivedAt to the persistedAt of the end; nil while the run goes on.
	TookMs *int64 `json:"tookMs,omitzero"`
}

// Run is the reply of run.get, without fixtures.
type Run struct {
	RunRow
	Substatus         string `json:"substatus,omitzero"`
	PluginAbsentSince string `json:"pluginAbsentSince,omitzero"`
}

// RunRow is a run in a list: its state, and the request and the end by its events. A run that a
// producer began may lack members, and has neither type nor result.
type RunRow struct {
	runevents.Snapshot
	Timing
	TownID  string `json:"townId,omitzero"`
	ActorID string `json:"actorId,omitzero"`
	// Type is the type of the proposal or, of a run that is a signal, the signal.
	Type         string             `json:"type,omitzero"`
	Command      string             `json:"command,omitzero"`
	ResultStatus handoff.Status     `json:"resultStatus,omitzero"`
	ReasonCode   handoff.ReasonCode `json:"reasonCode,omitzero"`
	// PluginAbsent is the absence of the plugin that the command waits for; nil if it waits for none.
	PluginAbsent *AbsentPlugin `json:"pluginAbsent,omitzero"`
}

// Runs is the reply of run.list.
type Runs struct {
	Runs []RunRow `json:"runs"`
	Next uint64   `json:"next,omitzero"` // the After of the next page; 0 on the last
	// Searched is how many runs the page was searched for, and SearchedTo the persistedAt of the first
	// event of the last one of them; "" if there was none.
	Searched   int    `json:"searched"`
	SearchedTo string `json:"searchedTo,omitzero"`
	// Mark is the end of the complete part of the list, for the AfterMark of a later one.
	Mark uint64 `json:"mark"`
}

// Sample counts the handoffs of a step of time.
type Sample struct {
	At string `json:"at"` // its begin
	// Results counts the handoffs that ended: by the status of the result, or cancelled.
	Results map[string]int64 `json:"results"`
	// P50Ms and P99Ms are how long half of them, and 99 in 100, took at most from their arrival; nil if
	// none ended.
	P50Ms *int64 `json:"p50Ms,omitzero"`
	P99Ms *int64 `json:"p99Ms,omitzero"`
	// Waiting is how many handoffs waited or were being applied, on average.
	Waiting float64 `json:"waiting"`
}

// Samples is the reply of world.samples, the oldest first.
type Samples struct {
	StepMs  int64    `json:"stepMs"`
	Samples []Sample `json:"samples"`
}

// Client is the connections of a user to NATS with one name.
type Client struct {
	User string `json:"user,omitzero"` // "" for one that need not sign in
	Role string `json:"role,omitzero"`
	Name string `json:"name,omitzero"` // that the client gives its connections
	// Connections counts the open ones, and Since is when the first of them began.
	Connections int    `json:"connections"`
	Since       string `json:"since,omitzero"`
	LastSeen    string `json:"lastSeen"` // when one sent or received something
	// Towns are the towns of a plugin, whose commands it takes; * for all.
	Towns []string `json:"towns,omitempty"`
}

// Clients is the reply of world.clients, those that are connected first.
type Clients struct {
	Clients []Client `json:"clients"`
}

// Events is the reply of run.events.
type Events struct {
	Events       []jsontext.Value `json:"events"` // each a RunEventRecord
	LastEventSeq int64            `json:"lastEventSeq"`
	Mark         uint64           `json:"mark,omitzero"`
	// Snapshot is the state that the events follow, of FROM_SNAPSHOT.
	Snapshot *runevents.Snapshot `json:"snapshot,omitzero"`
}

// Commit is a commit of the log as its readers see it: a commit message.
type Commit struct {
	Cursor string `json:"cursor"` // grows with the log
	// Damaged means that the commit cannot be read; Cursor is then the only other member.
	Damaged bool   `json:"damaged,omitzero"`
	At      string `json:"at,omitzero"`     // the persistedAt of the events
	TownID  string `json:"townId,omitzero"` // "" if it is of no town
	Cause   string `json:"cause,omitzero"`
	// Revision, Epoch and Hash are of the town's state after the commit; 0, nil and "" if the commit
	// holds no state.
	Revision uint64 `json:"revision,omitzero"`
	Epoch    *int64 `json:"epoch,omitzero"`
	Hash     string `json:"hash,omitzero"`
	RunID    string `json:"runId,omitzero"`
	// Events are RunEventRecords.
	Events []jsontext.Value `json:"events,omitzero"`
}

// EventListReply is the reply of event.list, in the order of the log.
type EventListReply struct {
	Commits []Commit `json:"commits"`
	Cursor  string   `json:"cursor"` // the After of the next page
	// Gap means that commits between After and Cursor are no longer kept.
	Gap bool `json:"gap,omitzero"`
}

// The statuses of a Control, and its substatus while commands are still being applied.
const (
	Running  = "RUNNING"
	Paused   = "PAUSED"
	Draining = "DRAINING"
)

// Control is the reply of the control verbs and of run.cancel.
type Control struct {
	TownID    string    `json:"townId,omitzero"`
	Status    string    `json:"status"`
	Substatus string    `json:"substatus,omitzero"`
	Applying  int       `json:"applying"` // commands
	Message   string    `json:"message,omitzero"`
	PausedBy  *PausedBy `json:"pausedBy,omitzero"`
	SignalID  string    `json:"signalId,omitzero"`
}

// PausedBy is the pause of a town or of the world by an operator.
type PausedBy struct {
	SignalID       string    `json:"signalId"` // the run of the signal
	ActorID        string    `json:"actorId"`
	Reason         string    `json:"reason,omitzero"`
	At             time.Time `json:"at"`
	DrainTimeoutMs int64     `json:"drainTimeoutMs"`
}

// Draining reports whether commands that are being applied are still waited for.
func (p *PausedBy) Draining(now time.Time) bool {
	return now.Before(p.At.Add(time.Duration(p.DrainTimeoutMs) * time.Millisecond))
}

// Retried is the reply of run.retry.
type Retried struct {
	TownID    string `json:"townId"`
	HandoffID string `json:"handoffId"`
	RetryOf   string `json:"retryOf"`
	RunID     string `json:"runId"`
	// Result is absent while the handoff waits or its command is being applied.
	Result jsontext.Value `json:"result,omitzero"`
}

// Alert is an alert in a list, and the reply of alert.ack.
type Alert struct {
	// Seq names it to alert.ack.
	Seq uint64 `json:"seq"`
	// ID is shared by all messages about the same alert.
	ID string `json:"id"`
	runevents.Alert
	// More is how many more with this code were counted for the run, which has one of them.
	More int64 `json:"more,omitzero"`
	// Acknowledged says who has dealt with it; nil if nobody has.
	Acknowledged *Acknowledgement `json:"acknowledged,omitzero"`
}

// Acknowledgement says who has dealt with an alert, when and why.
type Acknowledgement struct {
	By     string `json:"by"`
	At     string `json:"at"`
	Reason string `json:"reason,omitzero"`
}

// Alerts is the reply of alert.list, the newest alert first.
type Alerts struct {
	Alerts []Alert `json:"alerts"`
	Next   uint64  `json:"next,omitzero"` // the After of the next page; 0 on the last
}

// Approval is a proposal that waits for a person, or is approved and waits for its handoff.
type Approval struct {
	TownID    string `json:"townId"`
	HandoffID string `json:"handoffId"`
	// HandoffHash names the handoff itself, of which several may have one HandoffID.
	HandoffHash string `json:"handoffHash"`
	// Status is waiting or approved, and else denied, used, stale or expired.
	Status string `json:"status"`
	// RunID is the run that carried the handoff out or, before that, the run that asked; "" if the
	// log does not keep it.
	RunID   string `json:"runId,omitzero"`
	Command string `json:"command"`
	// Proposal is the proposal.v2 as its agent made it.
	Proposal jsontext.Value `json:"proposal"`
	At       string         `json:"at"`
	Expires  string         `json:"expiresAt"`
	// DecidedBy, DecidedAt and Reason are of the decision, "" before it.
	DecidedBy string `json:"decidedBy,omitzero"`
	DecidedAt string `json:"decidedAt,omitzero"`
	Reason    string `json:"reason,omitzero"`
	// Expected are the changes that the built-in rules expect, and ExpectedFailure why they expect
	// that the command fails. A game may do otherwise.
	Expected        []ExpectedChange   `json:"expected"`
	ExpectedFailure handoff.ReasonCode `json:"expectedFailure,omitzero"`
	// ExpectedLeftOut is how many changes are expected beyond Expected.
	ExpectedLeftOut int `json:"expectedLeftOut,omitzero"`
}

// ExpectedChange is a value of a snapshot that a command is expected to change.
type ExpectedChange struct {
	Path string `json:"path"` // a JSON Pointer
	// From and To are the values before and after. One that is absent does not exist, or is too
	// large: then FromBytes or ToBytes is its size.
	From      jsontext.Value `json:"from,omitzero"`
	To        jsontext.Value `json:"to,omitzero"`
	FromBytes int            `json:"fromBytes,omitzero"`
	ToBytes   int            `json:"toBytes,omitzero"`
}

// Decided is the reply of approval.decide.
type Decided struct {
	TownID    string `json:"townId"`
	HandoffID string `json:"handoffId"`
	Decision  string `json:"decision"`
	SignalID  string `json:"signalId"`
	ActorID   string `json:"actorId"`
	Reason    string `json:"reason,omitzero"`
	At        string `json:"at"`
	// RunID and Result are of the submitted handoff, or of one accepted before; absent if unknown.
	RunID  string         `json:"runId,omitzero"`
	Result jsontext.Value `json:"result,omitzero"`
	// NotSubmitted is why there is no result although one was asked for. The decision stands.
	NotSubmitted *NotSubmitted `json:"notSubmitted,omitzero"`
}

// NotSubmitted is an error beside an answer.
type NotSubmitted struct {
	Code    wire.Code `json:"code"`
	Message string    `json:"message"`
}

// Identity is the reply of whoami: the sender, and its rights. Nil lists mean all.
type Identity struct {
	World string `json:"world"`
	// User is the name in the access file: "" without access control, and in the world's account if
	// the answer does not go to the inbox of one of its users. Role is "" without access control; a
	// request from the world's account is an operator's.
	User   string      `json:"user,omitzero"`
	Role   wire.Role   `json:"role,omitzero"`
	Towns  []string    `json:"towns,omitempty"`  // in which it acts
	Actors []string    `json:"actors,omitempty"` // for which it speaks
	Read   []string    `json:"read,omitempty"`   // towns
	Verbs  []wire.Verb `json:"verbs"`
}

// Approvals is the reply of approval.list, the oldest proposal first.
type Approvals struct {
	Approvals []*Approval `json:"approvals"`
	Next      string      `json:"next,omitzero"` // the After of the next page; "" on the last
}
