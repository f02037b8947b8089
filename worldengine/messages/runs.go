package messages

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
)

// ResultGet asks for the result with which a key was accepted.
//
//schema:result-get-request.v1
type ResultGet struct {
	// The key of the handoff: proposal_ and 64 lower-case hex digits.
	IdempotencyKey string `json:"idempotencyKey" schema:"proposalId"`
	// The town that accepted the key. Each town has its own keys; if left out, the answer is the
	// result of the town that accepted the key last.
	TownID string `json:"townId,omitzero" schema:"id"`
}

// Result is the result with which a key was accepted. Its member result has exactly the members
// that its schema names.
//
//schema:result-get-reply.v1
type Result struct {
	// The id of the run in which the handoff was accepted; it contains no |.
	RunID string `json:"runId" schema:"noBar"`
	// The result of the accepted handoff, executed or failed, in revision 0. If a header asks for
	// revision 1, it is an execution-result-revision-1.v1.
	Result jsontext.Value `json:"result" schema:"ref=execution-result.v1"`
}

// RunGet asks for the state of a run.
//
//schema:run-get-request.v1
//schema:example {"runId": "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"}
//schema:example {"runId": "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a", "fixtures": true}
type RunGet struct {
	// The id of the run, as in the header Run-Id of a result: a token of a NATS subject, and never
	// a wildcard.
	RunID string `json:"runId" schema:"runId"`
	// Whether to answer with the fixtures of the run, too; false if left out.
	Fixtures bool `json:"fixtures,omitzero"`
}

// Run is the reply of run.get, without fixtures.
type Run struct {
	RunRow
	Substatus         string `json:"substatus,omitzero"`
	PluginAbsentSince string `json:"pluginAbsentSince,omitzero"`
}

// Timing is how long a run took from its client's view.
type Timing struct {
	// ArrivedAt is when the handoff or the signal arrived, before it waited for anything.
	ArrivedAt string `json:"arrivedAt,omitzero"`
	// TookMs is the time from ArrivedAt to the answer or, if the server does not remember that, to
	// the persistedAt of the run's end, before its commit; nil while the run goes on.
	TookMs *int64 `json:"tookMs,omitzero"`
}

// RunRow is a run in a list: its state, and its request and its end as its events have them. A run
// that a producer began may lack members, and has neither type nor result.
type RunRow struct {
	runevents.Snapshot
	Timing
	TownID  string `json:"townId,omitzero"`
	ActorID string `json:"actorId,omitzero"`
	// Type is the type of the proposal or, if the run is a signal, the signal.
	Type         string             `json:"type,omitzero"`
	Command      string             `json:"command,omitzero"`
	ResultStatus handoff.Status     `json:"resultStatus,omitzero"`
	ReasonCode   handoff.ReasonCode `json:"reasonCode,omitzero"`
	// PluginAbsent is the absence of the plugin for which the command waits; nil if the command
	// waits for no plugin.
	PluginAbsent *AbsentPlugin `json:"pluginAbsent,omitzero"`
}

// RunList asks for a page of the list of runs, the newest first.
//
//schema:run-list-request.v1
//schema:example {}
//schema:example {"afterMark": 4711}
//schema:example {"townId": "town-threatened", "from": "2026-02-16T10:00:00Z", "limit": 50}
//schema:example {"status": "rejected", "actorId": "mayor-1", "order": "oldest"}
type RunList struct {
	// Only the runs of this town; of all towns if left out.
	TownID string `json:"townId,omitzero" schema:"id"`
	// Only the runs of this actor: who proposed the handoff, or gave the signal.
	ActorID string `json:"actorId,omitzero" schema:"id"`
	// Only the runs of proposals of this type, such as PROJECT_ADVANCE, or of this signal: PAUSE,
	// RESUME or CANCEL.
	Type string `json:"type,omitzero" schema:"id"`
	// Only the runs that have this status now, or whose result has this status.
	Status string `json:"status,omitzero" schema:"runStatuses"`
	// Only the runs whose result has this reason code.
	Reason string `json:"reasonCode,omitzero" schema:"id"`
	// Only the runs with an id that begins with this text: the run's own id, its key, or the id of
	// its handoff or its result. The text may leave out the word before the hash. The server reads
	// at most some thousands of runs for such a request.
	ID string `json:"id,omitzero" schema:"id"`
	// Only the runs whose first event was persisted (persistedAt) at this time or later.
	From string `json:"from,omitzero" schema:"time"`
	// Only the runs whose first event was persisted before this time.
	To string `json:"to,omitzero" schema:"time"`
	// Only the runs that have an event behind this mark of an earlier reply, however long ago the
	// runs began. They come in the order of their first such events. A request with afterMark has
	// no from, to or order.
	AfterMark *uint64 `json:"afterMark,omitzero"`
	// Whether the newest or the oldest runs come first, in the order in which they were
	// committed; newest if left out.
	Order string `json:"order,omitzero" schema:"one=newest|oldest"`
	// Continue after this place: next of the previous page, in the same order. If left out, the
	// list begins at the first run of the order.
	After uint64 `json:"after,omitzero"`
	// The largest number of runs to answer with; the server chooses if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=200"`
}

// Runs is a page of the list of runs.
//
//schema:run-list-reply.v1
//schema:example {"runs": [], "searched": 0, "mark": 4711}
type Runs struct {
	// The runs of this page, each as run.get shows it.
	Runs []RunRow `json:"runs" schema:"ref=run-get-reply.v1"`
	// The value of after for the next page; left out on the last page. A page with next may have
	// fewer runs than wanted, or none: the next page continues the search.
	Next uint64 `json:"next,omitzero" schema:"min=1"`
	// How many runs the server searched for this page.
	Searched int `json:"searched"`
	// When the first event of the last searched run was persisted.
	SearchedTo string `json:"searchedTo,omitzero"`
	// The sequence of the world's log up to which the list is complete, once this page and all
	// later ones are read. The list then has every run that the request asks for and that had an
	// event up to the mark. An event on the bus has its sequence in the header Log-Seq.
	Mark uint64 `json:"mark"`
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

// Events is a page of the events of a run.
//
//schema:run-events-reply.v1
//schema:example {"events": [], "lastEventSeq": 0}
type Events struct {
	// The events of this page, in order of runSeq.
	Events []jsontext.Value `json:"events" schema:"ref=run-event-record.v2"`
	// The runSeq of the run's last event, 0 if it has none. There are more pages while it is above
	// the runSeq of this page's last event.
	LastEventSeq int64 `json:"lastEventSeq"`
	// The mark of the last event of this page: the event's sequence in the world's log, which is
	// its header Log-Seq on the bus. Left out if the page has no events.
	Mark uint64 `json:"mark,omitzero" schema:"min=1"`
	// If mode is FROM_SNAPSHOT: the state of the run after its events up to snapshotSeq. If the run
	// has no events up to snapshotSeq, snapshot is left out, and events has all its events, as with
	// FULL.
	Snapshot *runevents.Snapshot `json:"snapshot,omitzero" schema:"ref=run-get-reply.v1"`
}

// RunAppend is the request of run.append.
type RunAppend struct {
	TownID string            `json:"townId"`
	Events []runevents.Write `json:"events"`
}

// Appended is the reply of run.append: how each event is stored.
type Appended struct {
	Appended []runevents.Appended `json:"appended"`
}

// EventListRequest asks for the commits of the log behind a cursor, in the order of the log.
//
//schema:event-list-request.v1
//schema:example {"after": "0"}
//schema:example {"after": "0", "townId": "town-threatened", "limit": 20}
//schema:example {"after": "42", "waitMs": 20000}
//schema:example {}
type EventListRequest struct {
	// The cursor of the previous page; "0" begins with the oldest commit that is kept. If left out,
	// the answer has no commits, and its cursor is the end of the log.
	After string `json:"after,omitzero" schema:"id"`
	// Only the commits of this town. If left out, the commits of all towns that the user may read;
	// a user who may read all towns also gets the commits that belong to no town.
	TownID string `json:"townId,omitzero" schema:"id"`
	// The largest number of commits to answer with; 100 if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=1000"`
	// How long to wait for the first commit, in milliseconds; not at all if left out.
	WaitMs int64 `json:"waitMs,omitzero" schema:"max=30000"`
}

// Commit is a commit of the log as its readers see it: a commit message.
type Commit struct {
	Cursor string `json:"cursor"` // grows with the log
	// Damaged means that the commit cannot be read; Cursor is then the only other member.
	Damaged bool   `json:"damaged,omitzero"`
	At      string `json:"at,omitzero"`     // the persistedAt of the events
	TownID  string `json:"townId,omitzero"` // "" if it is of no town
	Cause   string `json:"cause,omitzero"`
	// Revision, Epoch and Hash describe the town's state after the commit; 0, nil and "" if the
	// commit holds no state.
	Revision uint64 `json:"revision,omitzero"`
	Epoch    *int64 `json:"epoch,omitzero"`
	Hash     string `json:"hash,omitzero"`
	RunID    string `json:"runId,omitzero"`
	// Events are RunEventRecords.
	Events []jsontext.Value `json:"events,omitzero"`
}

// EventListReply is a page of the commits of the log.
//
//schema:event-list-reply.v1
type EventListReply struct {
	// The commits of this page, in the order of the log.
	Commits []Commit `json:"commits" schema:"ref=commit.v1"`
	// The value of after for the next page: the last commit that the server read, even if the page
	// leaves it out.
	Cursor string `json:"cursor" schema:"id"`
	// true if the log no longer keeps some of the commits between after and cursor. With townId,
	// missing commits of other towns do not count if the server knows their towns.
	Gap bool `json:"gap,omitzero"`
}
