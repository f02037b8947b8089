package messages

import (
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// WorldStatus asks for the state of the world.
//
//schema:world-status-request.v1
//schema:example {}
//schema:example {"damage": true}
type WorldStatus struct {
	// Whether to read the last record of every town, and to report the unreadable ones; false if
	// left out.
	Damage bool `json:"damage,omitzero"`
}

// WorldReport is the reply of world.status. It has the members of control.get, too.
type WorldReport struct {
	Control `json:",inline"`
	World   string `json:"world"`
	Healthy bool   `json:"healthy"`
	// Problems are the reasons why the world is not healthy.
	Problems []string `json:"problems"`
	// Unknown has the reasons why parts are left out, by the part: pause, alerts, approvals,
	// servers or disk.
	Unknown map[string]string `json:"unknown"`

	// LogEnd is the last sequence of the log.
	LogEnd uint64 `json:"logEnd"`
	// Towns counts the towns, and States the towns in each state. The lists name some of these
	// towns.
	Towns         int            `json:"towns"`
	States        TownStates     `json:"townStates"`
	TownsPaused   []TownPause    `json:"townsPaused"`
	TownsPending  []TownPending  `json:"townsPending"`
	PluginsAbsent []AbsentPlugin `json:"pluginsAbsent"`

	Approvals   WaitingApprovals `json:"approvals"`
	Alerts      OpenAlerts       `json:"alerts"`
	DeadLetters uint64           `json:"deadLetters"`
	StreamBytes uint64           `json:"streamBytes"`
	// Unfinished is how many requests are queued or in hand.
	Waiting int `json:"waiting"`
	// Servers are the writer, which has answered, and the servers that stand by.
	Servers []Server `json:"servers"`
}

// TownStates counts towns by state. A town may be in several.
type TownStates struct {
	// Paused towns have a pause of their own.
	Paused   int `json:"paused"`
	Applying int `json:"applying"`
	// NoPlugin towns have a command that waits for a plugin that is away.
	NoPlugin int `json:"noPlugin"`
	// Waiting towns have a proposal that waits for a person's approval.
	Waiting int `json:"waiting"`
	// InDoubt towns had a command that failed, though the game may have applied it.
	InDoubt int `json:"inDoubt"`
}

// TownPause is a town with a pause of its own.
type TownPause struct {
	TownID  string    `json:"townId"`
	ActorID string    `json:"actorId"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// TownPending is a town whose command is being applied.
type TownPending struct {
	TownID string `json:"townId"`
	RunID  string `json:"runId"`
}

// WaitingApprovals are the proposals that wait for a person's approval.
type WaitingApprovals struct {
	Count int `json:"count"`
	// Since is when the oldest of them began to wait, and TownID its town.
	Since  string `json:"since,omitzero"`
	TownID string `json:"townId,omitzero"`
}

// OpenAlerts are the alerts that are not acknowledged.
type OpenAlerts struct {
	Count map[runevents.Severity]int `json:"count"`
	// Newest has the newest alert of each code, of the five codes whose newest are the latest.
	Newest []OpenAlert `json:"newest"`
	// Acknowledged counts the acknowledged alerts.
	Acknowledged int `json:"acknowledged"`
	// Lost counts the alerts that servers could not store since they started.
	Lost int64 `json:"lost"`
}

// OpenAlert is the newest open alert of its code.
type OpenAlert struct {
	Alert
	// Open is how many alerts of the code are open, and Towns are their towns, 100 at most.
	Open  int      `json:"open"`
	Towns []string `json:"towns,omitempty"`
}

// Server is a server of the world.
type Server struct {
	ID string `json:"id"`
	// Name is for people; "" if it has none.
	Name    string `json:"name,omitzero"`
	Version string `json:"version"`
	// Started is when the server began to serve. Of a server that stands by it is when its process
	// began.
	Started time.Time `json:"started"`
	// Writer is set if the server serves the world; else it stands by, and has neither Stats nor
	// Verbs.
	Writer bool `json:"writer"`
	// Indexed is the log sequence up to which its index is complete.
	Indexed uint64       `json:"indexed"`
	Stats   *ServerStats `json:"stats,omitzero"`
	Verbs   []VerbCount  `json:"verbs,omitzero"`
}

// VerbCount counts the requests of a verb that a server has answered.
type VerbCount struct {
	Verb          wire.Verb `json:"verb"`
	Requests      int64     `json:"requests"`
	AverageMicros int64     `json:"averageMicros"`
}

// ServerStats are the statistics of a server.
type ServerStats struct {
	Stats
	Overload Overload `json:"overload"`
	// Disk is nil if the world is stored on the disk of another process.
	Disk *Disk `json:"disk,omitempty"`
}

// Disk is the room on the disk of a world, in bytes.
type Disk struct {
	Free  uint64 `json:"freeBytes"`
	Total uint64 `json:"totalBytes"`
	// Keep is the room that stays free: with less, nothing is stored.
	Keep uint64 `json:"keepBytes"`
}

// lowRoom times Keep is little room.
const lowRoom = 4

// Low reports whether there is little room, so that storing may soon stop.
func (d Disk) Low() bool { return d.Free < lowRoom*d.Keep }

// Overload is how full a server is, and how many requests it has refused.
type Overload struct {
	// Held counts the requests that have arrived and are not answered yet. HeldBytes is their size,
	// which --max-held bounds.
	Held      int   `json:"held"`
	HeldBytes int64 `json:"heldBytes"`
	// Refused counts the answers 429 by the bound that was full. "town" stands for the slots of one
	// town, run or key, "world" for all slots that the world may have, "server" for the slots that all
	// worlds of the server share (only if it has several), "bytes" for --max-held, and "queue" for the engine's queue
	// for the town.
	Refused map[string]int64 `json:"refused"`
	// StrayReplies counts the requests that were dropped because their reply subject is no inbox.
	StrayReplies int64 `json:"strayReplies"`
}

// Stats are the counts of an engine since it was opened, and its present state.
type Stats struct {
	// Results counts the results by status.
	Results map[handoff.Status]int64 `json:"results"`
	// Unfinished is how many requests are queued or in hand.
	Unfinished int `json:"waiting"`
	// Applying is how many of this engine's commands are being applied outside it.
	Applying int `json:"applying"`
	// Indexed is the log sequence up to which the index is complete.
	Indexed uint64 `json:"indexed"`
	// IndexEnd is the log sequence that Indexed must reach until the index is built; absent once it
	// is built.
	IndexEnd uint64 `json:"indexEnd,omitzero"`
	// BusPublished is the log sequence up to which the bus has the run events; absent without a
	// bus.
	BusPublished *uint64 `json:"busPublished,omitempty"`
	// CommitsMissed is how many commits of this engine were not published live.
	CommitsMissed int64 `json:"commitsMissed"`
	// ProjectorLagMs is how far projections are behind the persisted events, in milliseconds, and
	// ProjectorBehind by how many records of events; both are absent with --no-projector.
	ProjectorLagMs  *int64  `json:"projectorLagMs,omitempty"`
	ProjectorBehind *uint64 `json:"projectorBehind,omitempty"`
	AlertCounts
	// WorldPaused is set while the world is paused.
	WorldPaused bool `json:"worldPaused,omitzero"`
	// TownsPaused is how many towns have a pause of their own, as far as the engine knows. The
	// engine learns of another engine's pause within moments.
	TownsPaused int `json:"townsPaused"`
	// PluginsAbsent is how many towns had no plugin when this engine last asked for one.
	PluginsAbsent int `json:"pluginsAbsent"`
	// ApprovalsWaiting is how many proposals wait for a person's approval, and ApprovalOldestMs how
	// long the oldest has waited, in milliseconds.
	ApprovalsWaiting int   `json:"approvalsWaiting"`
	ApprovalOldestMs int64 `json:"approvalOldestMs"`
	// StorageFull is why nothing can be stored now; absent if storing is possible.
	StorageFull string `json:"storageFull,omitzero"`
	// LogLost is why nothing is judged until an operator acts; absent if handoffs are judged.
	LogLost string `json:"logLost,omitzero"`
	// ReplicaDamaged names the nodes of NATS that lack messages of the log; absent if none is known.
	ReplicaDamaged string `json:"replicaDamaged,omitzero"`
	// ProcessorMs is the processor time that the engine's process has used, in milliseconds.
	ProcessorMs int64 `json:"processorMs"`
}

// AlertCounts counts alerts.
type AlertCounts struct {
	// Alerts counts the raised alerts by code. AlertsLost is how many of them did not reach the
	// stream of alerts.
	Alerts     map[runevents.AlertCode]int64 `json:"alerts"`
	AlertsLost int64                         `json:"alertsLost"`
	// AlertsMore counts, by code, the findings without an alert of their own. Their run has an
	// alert of that code, or their town has as many as it may at a time.
	AlertsMore map[runevents.AlertCode]int64 `json:"alertsMore"`
}
