package messages

import (
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

// TownGet asks for the state of one town, now or as a revision left it.
//
//schema:town-get-request.v1
//schema:example {"townId": "town-threatened"}
//schema:example {"townId": "town-threatened", "revision": 42}
type TownGet struct {
	// The id of the town: any non-empty string.
	TownID string `json:"townId" schema:"id"`
	// The wanted revision of the town, one that town.history lists; the current one if left out.
	Revision uint64 `json:"revision,omitzero" schema:"min=1"`
}

// TownSummary is a town without its snapshot. Revision is the log sequence of its last change.
type TownSummary struct {
	// The id of the town: any non-empty string.
	TownID string `json:"townId" schema:"id"`
	// The hash of the canonical snapshot of the town.
	SnapshotHash string `json:"snapshotHash" schema:"hash"`
	// The epoch of the town, which is the day of its snapshot.
	DecisionEpoch int64 `json:"decisionEpoch"`
	// A number that grows with every change of the town; compare it only with another revision of
	// the same town.
	Revision uint64 `json:"revision"`
	// Who applies the town's commands: local (the built-in rules), plugin or rcon.
	Apply string `json:"apply" schema:"id"`
	// The run whose command is being applied to the town; left out if there is none.
	PendingRunID string `json:"pendingRunId,omitzero" schema:"id"`
	// True while the town itself is paused.
	Paused bool `json:"paused,omitzero"`
	// Since when the town has had no plugin; left out if the engine's last request reached one.
	PluginAbsentSince string `json:"pluginAbsentSince,omitzero"`
}

// AbsentPlugin is a town without a plugin.
type AbsentPlugin struct {
	// The id of the town.
	TownID string `json:"townId" schema:"id"`
	// Since when the town has had no plugin.
	Since string `json:"since" schema:"id"`
	// The run whose command waits; left out if no server asks for the plugin at the moment.
	RunID string `json:"runId,omitzero"`
	// The logical attempt, from 1.
	Attempt int64 `json:"attempt,omitzero"`
	// The plugin's last answer, or the reason why there is none.
	Said string `json:"said,omitzero"`
	// When the plugin is next asked.
	NextAt string `json:"nextAt,omitzero"`
	// The remedy, for people.
	Todo string `json:"todo"`
}

// Failure is a handoff that was accepted and could not be applied.
type Failure struct {
	// The id of the handoff.
	HandoffID string `json:"handoffId" schema:"id"`
	// Why it failed.
	ReasonCode handoff.ReasonCode `json:"reasonCode" schema:"id"`
	// When its result was stored, as in the RunEvents contract: 2026-02-16T10:00:00.000Z.
	At string `json:"at" schema:"id"`
}

// Town is the state of one town.
//
//schema:town-get-reply.v1
type Town struct {
	TownSummary `json:",inline"`
	// The authoritative state of the town.
	Snapshot *town.Snapshot `json:"snapshot" schema:"ref=snapshot.v1"`
	// The types of proposals that a person must approve in the town; left out if there are none.
	Approval []handoff.ProposalType `json:"approval,omitempty" schema:"id"`
	// The absence of the plugin: since, attempt, said, nextAt and todo, as in world.status; left
	// out if pluginAbsentSince is.
	PluginAbsent *AbsentPlugin `json:"pluginAbsent,omitzero"`
	// The last handoff that failed after it was accepted on this very state; left out if there is
	// none. The same proposal would be a duplicate of it.
	LastFailure *Failure `json:"lastFailure,omitzero"`
}

// TownPut creates a town, or replaces exactly one state of it. The reply is a town-get-reply.v1.
//
//schema:town-put-request.v1
type TownPut struct {
	// The new state of the town, with the town's id. Its day must not be before the town's day.
	Snapshot any `json:"snapshot" schema:"ref=snapshot.v1"` // a *town.Snapshot, or its JSON
	// The snapshotHash of the state to replace. If left out, the town is created; if it exists, the
	// request is refused.
	Expected string `json:"expectedSnapshotHash,omitzero" schema:"hash"`
	// Who applies the town's commands from now on. If left out, this stays as it is; a new town
	// gets the server's default.
	Apply string `json:"apply,omitzero" schema:"one=local|plugin|rcon"`
	// The types of proposals that a person must approve in the town from now on; an empty list for
	// none. If left out, they stay as they are; a new town gets the world's setting.
	Approval []handoff.ProposalType `json:"approval,omitzero" schema:"proposalTypes,most=100"`
}

// TownPatch changes members of exactly one state of a town. The reply is a town-get-reply.v1.
//
//schema:town-patch-request.v1
type TownPatch struct {
	// The id of the town: any non-empty string.
	TownID string `json:"townId" schema:"id"`
	// A JSON Merge Patch (RFC 7396) of the town's snapshot. null removes a member, but mission and
	// latestNetherEvent become null. A list is replaced as a whole.
	Patch jsontext.Value `json:"patch" schema:"object"`
	// The snapshotHash of the state to change; the town must still be in that state.
	Expected string `json:"expectedSnapshotHash" schema:"hash"`
	// The types of proposals that a person must approve in the town from now on; an empty list for
	// none. If left out, they stay as they are.
	Approval []handoff.ProposalType `json:"approval,omitzero" schema:"proposalTypes,most=100"`
}

// TownRemove removes a town. The town is unknown from then on; its history stays as long as the log
// keeps it. town.put can make it again, at a day that is not before its last one. The reply is a
// town-remove-reply.v1.
//
//schema:town-remove-request.v1
//schema:example {"townId": "town-threatened"}
type TownRemove struct {
	// The id of the town: any non-empty string.
	TownID string `json:"townId" schema:"id"`
}

// The states by which a list of towns is filtered, and the orders of the list: by id, the highest
// day first, and the last change first.
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

// TownList asks for a page of the list of towns.
//
//schema:town-list-request.v1
//schema:example {}
//schema:example {"after": "town-threatened", "limit": 100}
//schema:example {"state": "waiting", "sort": "changed"}
type TownList struct {
	// Start after this town id: next of the previous page. If left out, the list begins at the
	// first town.
	After string `json:"after,omitzero"`
	// The largest number of towns to answer with; the server chooses if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=10000"`
	// Only the towns whose ids contain this text, in any case, or whose snapshotHash begins with
	// it.
	Text string `json:"text,omitzero" schema:"id"`
	// Only the towns in this state, as world.status counts them: paused with a pause of their own,
	// applying a command, noPlugin if the plugin of their command is away, waiting for a person's
	// approval, or inDoubt.
	State string `json:"state,omitzero" schema:"one=paused|applying|noPlugin|waiting|inDoubt"`
	// The order: by id, the highest day first, or the last change first; id if left out.
	Sort string `json:"sort,omitzero" schema:"one=id|day|changed"`
}

// ListedTown is a town in a list.
type ListedTown struct {
	TownSummary `json:",inline"`
	// How many proposals wait for a person's approval; left out if none does.
	Waiting int `json:"waiting,omitzero" schema:"min=1"`
	// True if the town had a command that failed, though the game may have applied it.
	InDoubt bool `json:"inDoubt,omitzero"`
}

// Towns is a page of the list of towns.
//
//schema:town-list-reply.v1
type Towns struct {
	// The towns of this page.
	Towns []ListedTown `json:"towns"`
	// The value of after for the next page; left out on the last page.
	Next string `json:"next,omitzero"`
	// How many towns the user may read.
	Total int `json:"total"`
	// How many of these towns pass the filters.
	Found int `json:"found"`
}

// TownHistory asks for the revisions of a town, or for the newest changes of all towns, the
// newest first.
//
//schema:town-history-request.v1
//schema:example {"townId": "town-threatened"}
//schema:example {"townId": "town-threatened", "before": 42, "limit": 20}
//schema:example {"after": 42, "limit": 20}
type TownHistory struct {
	// The id of the town: any non-empty string. If left out, the answer has the changes of all
	// towns that the user may read, as far as they are among the last 500 messages of the log.
	TownID string `json:"townId,omitzero" schema:"id"`
	// Only the revisions before this one: next of the previous page. If left out, the list begins
	// at the newest revision.
	Before uint64 `json:"before,omitzero" schema:"min=1"`
	// Only the revisions after this one, such as the newest that the client knows.
	After uint64 `json:"after,omitzero" schema:"min=1"`
	// The largest number of revisions to answer with; the server chooses if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=1000"`
}

// Revision is one change of a town, and the state that it left.
type Revision struct {
	// The number of the revision: town.get returns the state that the revision left; a removal left
	// none.
	Revision uint64 `json:"revision" schema:"min=1"`
	// When it was stored, as in the RunEvents contract: 2026-02-16T10:00:00.000Z.
	At string `json:"at" schema:"id"`
	// The cause of the change: handoff (an accepted handoff: see status), pending (a handoff was
	// accepted, and a game is asked to apply its command: at first, again, or by another server),
	// cancelled (an operator cancelled the run of such a command), put (town.put, town.patch or the
	// world file), remove (an operator removed the town), control (an operator paused or resumed
	// the town), asked (a handoff waits for a person's approval), decided (a person approved or
	// denied a handoff) or mend (an operator put the town back to its last readable state).
	Cause string `json:"cause" schema:"id"`
	// The run of the handoff, or of the operator's signal; left out if there is none.
	RunID string `json:"runId,omitzero" schema:"id"`
	// Who proposed the handoff, gave the signal, put the state, or removed the town; left out if
	// unknown.
	ActorID string `json:"actorId,omitzero" schema:"id"`
	// The command of the handoff.
	Command string `json:"command,omitzero" schema:"id"`
	// The status of the handoff's result: executed, or failed, which left the town as it was.
	Status handoff.Status `json:"status,omitzero" schema:"id"`
	// The reason code of the handoff's result.
	Reason handoff.ReasonCode `json:"reasonCode,omitzero" schema:"id"`
	// The decision epoch of the state that the revision left.
	Epoch int64 `json:"epoch"`
	// The snapshotHash of the state that the revision left. After a removal, hash and epoch are the
	// last state's.
	Hash string `json:"hash"`
}

// Change is a revision and its town; the town is "" in the history of one town.
type Change struct {
	// The id of the town; left out if the request names a town.
	TownID   string `json:"townId,omitzero" schema:"id"`
	Revision `json:",inline"`
}

// History is revisions of a town, or of all towns, the newest first.
//
//schema:town-history-reply.v1
type History struct {
	// The id of the town that the request names; left out if it names none.
	TownID string `json:"townId,omitzero" schema:"id"`
	// The revisions of this page, the newest first.
	Revisions []Change `json:"revisions"`
	// The value of before for the next page; left out at the end of the kept history, or of the
	// requested part.
	Next uint64 `json:"next,omitzero" schema:"min=1"`
}
