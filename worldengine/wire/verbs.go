package wire

import (
	"strings"
)

// Verb is the last part of a request's subject.
type Verb string

// The verbs.
const (
	// Handoff submits a handoff and returns its result.
	Handoff Verb = "handoff"
	// TownGet returns a town.
	TownGet Verb = "town.get"
	// TownHistory returns a page of the revisions of a town, the newest first.
	TownHistory Verb = "town.history"
	// MemoryGet returns the memory of a town, or of the world, as agents put it into prompts.
	MemoryGet Verb = "memory.get"
	// TownList returns a page of the towns.
	TownList Verb = "town.list"
	// TownPut creates a town, or replaces its state.
	TownPut Verb = "town.put"
	// TownPatch changes members of a town's state.
	TownPatch Verb = "town.patch"
	// TownRemove removes a town.
	TownRemove Verb = "town.remove"
	// ResultGet returns the result of an accepted handoff by its idempotency key.
	ResultGet Verb = "result.get"
	// RunGet returns a run's state.
	RunGet Verb = "run.get"
	// RunList returns a page of the runs, the newest first.
	RunList Verb = "run.list"
	// RunEvents returns a page of a run's events.
	RunEvents Verb = "run.events"
	// EventList returns a page of the commits of the log with their run events, the oldest first.
	EventList Verb = "event.list"
	// RunAppend stores run events of other producers.
	RunAppend Verb = "run.append"
	// RunCancel ends a run that waits.
	RunCancel Verb = "run.cancel"
	// RunRetry tries a run's handoff again if the run failed because no game could be reached.
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
	// ApprovalDecide approves or denies a proposal that waits.
	ApprovalDecide Verb = "approval.decide"
	// WhoAmI returns the sender's rights.
	WhoAmI Verb = "whoami"
	// WorldStatus returns the state of the world: of its towns, servers, alerts and approvals.
	WorldStatus Verb = "world.status"
	// WorldSamples returns counts and times of the handoffs of each of the last minutes.
	WorldSamples Verb = "world.samples"
	// WorldClients returns who is connected, or was lately.
	WorldClients Verb = "world.clients"
	// WorldsList returns a page of the worlds of a NATS.
	WorldsList Verb = "worlds.list"
	// WorldsCreate makes a world.
	WorldsCreate Verb = "worlds.create"
	// WorldsRemove deletes a world with all that it has stored.
	WorldsRemove Verb = "worlds.remove"
)

// worldsPrefix is the prefix of the verbs that are about worlds, not of one.
const worldsPrefix = "worlds."

// ManagesWorlds reports whether the verb is about worlds: any server of a NATS answers it, on a subject without the
// name of a world.
func (v Verb) ManagesWorlds() bool { return strings.HasPrefix(string(v), worldsPrefix) }
