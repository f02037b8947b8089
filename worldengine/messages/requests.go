package messages

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
)

// TownGet is the request of town.get, and of town.remove, which takes no revision.
type TownGet struct {
	TownID   string `json:"townId"`
	Revision uint64 `json:"revision,omitzero"` // 0 for the state of now
}

// TownList is the request of town.list: the towns behind one in the order of Sort.
type TownList struct {
	After string `json:"after,omitzero"`
	Limit int    `json:"limit,omitzero"`
	// Text is part of a town's id, or the beginning of its snapshotHash.
	Text string `json:"text,omitzero"`
	// State is a state of TownStates: only the towns in it.
	State string `json:"state,omitzero"`
	Sort  string `json:"sort,omitzero"` // id, the default, day or changed
}

// The states of towns, by which a list is filtered, and its orders: by id, the highest day first,
// and what changed last first.
const (
	TownPaused   = "paused"
	TownApplying = "applying"
	TownNoPlugin = "noPlugin"
	TownWaiting  = "waiting"
	TownInDoubt  = "inDoubt"

	SortID      = "id"
	SortDay     = "day"
	SortChanged = "changed"
)

// TownHistory is the request of town.history: the revisions before one and after another, of all
// towns if TownID is "".
type TownHistory struct {
	TownID string `json:"townId,omitzero"`
	Before uint64 `json:"before,omitzero"`
	After  uint64 `json:"after,omitzero"`
	Limit  int    `json:"limit,omitzero"`
}

// TownPut is the request of town.put.
type TownPut struct {
	Snapshot any `json:"snapshot"` // a *town.Snapshot, or its JSON
	// Expected is the snapshotHash of the state to replace, "" to create the town.
	Expected string `json:"expectedSnapshotHash,omitzero"`
	// Apply and Approval stay as they are if they are "" and nil.
	Apply    string                 `json:"apply,omitzero"`
	Approval []handoff.ProposalType `json:"approval,omitzero"`
}

// TownPatch is the request of town.patch; Patch is a JSON merge patch of the snapshot.
type TownPatch struct {
	TownID   string                 `json:"townId"`
	Patch    jsontext.Value         `json:"patch"`
	Expected string                 `json:"expectedSnapshotHash"`
	Approval []handoff.ProposalType `json:"approval,omitzero"`
}

// ResultGet is the request of result.get.
type ResultGet struct {
	IdempotencyKey string `json:"idempotencyKey"`
	TownID         string `json:"townId,omitzero"`
}

// RunGet is the request of run.get.
type RunGet struct {
	RunID    string `json:"runId"`
	Fixtures bool   `json:"fixtures,omitzero"`
}

// RunList is the request of run.list. Times are RFC 3339.
type RunList struct {
	TownID    string  `json:"townId,omitzero"`
	ActorID   string  `json:"actorId,omitzero"`
	Type      string  `json:"type,omitzero"`
	Status    string  `json:"status,omitzero"`
	Reason    string  `json:"reasonCode,omitzero"`
	ID        string  `json:"id,omitzero"` // see runs.RunFilter
	From      string  `json:"from,omitzero"`
	To        string  `json:"to,omitzero"`
	AfterMark *uint64 `json:"afterMark,omitzero"`
	Order     string  `json:"order,omitzero"` // newest, the default, or oldest
	After     uint64  `json:"after,omitzero"`
	Limit     int     `json:"limit,omitzero"`
}

// WorldSamples is the request of world.samples.
type WorldSamples struct {
	TownID  string `json:"townId,omitzero"`
	Minutes int    `json:"minutes,omitzero"` // 60 if it is 0
	Points  int    `json:"points,omitzero"`  // 60 if it is 0
}

// RunEvents is the request of run.events.
type RunEvents struct {
	RunID     string `json:"runId"`
	AfterSeq  int64  `json:"afterSeq,omitzero"`
	AfterMark uint64 `json:"afterMark,omitzero"`
	// Mode and SnapshotSeq read the run again from the start, or from a snapshot.
	Mode        runevents.ResyncMode `json:"mode,omitzero"`
	SnapshotSeq *int64               `json:"snapshotSeq,omitzero"`
	Limit       int                  `json:"limit,omitzero"`
}

// EventListRequest is the request of event.list: the commits after a cursor.
type EventListRequest struct {
	After  string `json:"after,omitzero"` // "" for the end of the log, "0" for all that is kept
	TownID string `json:"townId,omitzero"`
	Limit  int    `json:"limit,omitzero"`  // of commits
	WaitMs int64  `json:"waitMs,omitzero"` // for the first commit
}

// Signal is the request of control.pause, control.resume, control.get, run.cancel and run.retry; a
// verb takes the members that its schema names.
type Signal struct {
	TownID         string `json:"townId,omitzero"`
	RunID          string `json:"runId,omitzero"`
	ActorID        string `json:"actorId,omitzero"`
	Reason         string `json:"reason,omitzero"`
	DrainTimeoutMs int64  `json:"drainTimeoutMs,omitzero"`
	Force          bool   `json:"force,omitzero"`
}

// WorldStatus is the request of world.status.
type WorldStatus struct {
	// Damage reads the last record of every town, and reports those that cannot be read.
	Damage bool `json:"damage,omitzero"`
}

// AlertList is the request of alert.list.
type AlertList struct {
	After uint64 `json:"after,omitzero"`
	Limit int    `json:"limit,omitzero"`
	Open  bool   `json:"unacknowledged,omitzero"`
}

// AlertAck is the request of alert.ack.
type AlertAck struct {
	Seq     uint64 `json:"seq"`
	ActorID string `json:"actorId,omitzero"`
	Reason  string `json:"reason,omitzero"`
}

// ApprovalList is the request of approval.list.
type ApprovalList struct {
	TownID string `json:"townId,omitzero"`
	// Closed asks for the proposals that wait no longer, the newest first.
	Closed bool   `json:"closed,omitzero"`
	After  string `json:"after,omitzero"`
	Limit  int    `json:"limit,omitzero"`
}

// The decisions of an ApprovalDecide.
const (
	Approve = "approve"
	Reject  = "reject"
)

// ApprovalDecide is the request of approval.decide.
type ApprovalDecide struct {
	HandoffID string `json:"handoffId"`
	TownID    string `json:"townId"`
	// HandoffHash is "" for the only handoff with the id that waits in the town.
	HandoffHash string `json:"handoffHash,omitzero"`
	Decision    string `json:"decision"` // Approve or Reject
	Reason      string `json:"reason"`
	ActorID     string `json:"actorId,omitzero"`
	// Submit has the server execute the stored handoff at once.
	Submit bool `json:"submit,omitzero"`
}
