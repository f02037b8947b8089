package wire

import (
	"strings"
	"time"
)

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

// ManagesWorlds is Verb.ManagesWorlds.
func (s *VerbSpec) ManagesWorlds() bool { return s.Verb.ManagesWorlds() }

// VerbSpec declares a verb. The service, access control and the clients go by it, and
// worldengine/internal/gen writes the tables of docs/contracts.md and docs/access.md.
type VerbSpec struct {
	Verb Verb
	// Roles may send the verb; the engine may send every verb.
	Roles []Role
	// SlotKey is the member of the request that selects its slots: requests with the same value share
	// them. The default is SlotTown.
	SlotKey SlotKey
	// Lists is set if the verb reads through a world, so that fewer of its requests may wait.
	Lists bool
	// Changes means that a repeated request can be refused because the first one was carried out. A
	// client that got no answer, or a 503, must read the present state before it repeats such a
	// request. A handoff and a run.append have keys instead, which make a repetition safe.
	Changes bool
	// Signal is set if a refusal leaves a SignalRejected even when the sender has no right to the
	// verb. It is not set for approval.decide, which crosses from the clients' account: there, any
	// user's request may have approval.decide as its reply subject.
	Signal bool
	// AnswerWithin is how long NATS can still carry an answer back to a client; 30 s by default.
	AnswerWithin time.Duration
}

// SlotKey is the member of a request whose value selects the slots: its town, run or key.
type SlotKey string

// The members.
const (
	SlotTown           SlotKey = "townId"
	SlotRun            SlotKey = "runId"
	SlotIdempotencyKey SlotKey = "idempotencyKey"
	// SlotWorld is for the verbs about worlds.
	SlotWorld SlotKey = "world"
)

// Verbs returns every verb, in the order of docs/contracts.md. The caller may change the slice.
func Verbs() []Verb {
	verbs := make([]Verb, len(verbSpecs))
	for i := range verbSpecs {
		verbs[i] = verbSpecs[i].Verb
	}
	return verbs
}

// Spec returns the declaration of a verb. An unknown verb gets one without roles.
func (v Verb) Spec() *VerbSpec {
	for i := range verbSpecs {
		if verbSpecs[i].Verb == v {
			return &verbSpecs[i]
		}
	}
	return &VerbSpec{Verb: v}
}

var readers = []Role{Agent, Plugin, Operator, Approver, Observer}

var verbSpecs = []VerbSpec{
	{Verb: Handoff, Roles: []Role{Agent, Operator}, AnswerWithin: 10 * time.Minute},
	{Verb: TownGet, Roles: readers},
	{Verb: TownHistory, Roles: readers},
	{Verb: MemoryGet, Roles: readers},
	{Verb: TownList, Roles: readers, Lists: true},
	{Verb: TownPut, Roles: []Role{Plugin, Operator}, Changes: true, AnswerWithin: 2 * time.Minute},
	{Verb: TownPatch, Roles: []Role{Plugin, Operator}, Changes: true, AnswerWithin: 2 * time.Minute},
	{Verb: TownRemove, Roles: []Role{Operator}, Changes: true, AnswerWithin: 2 * time.Minute},
	{Verb: ResultGet, Roles: readers, SlotKey: SlotIdempotencyKey},
	{Verb: RunGet, Roles: readers, SlotKey: SlotRun},
	{Verb: RunList, Roles: readers, Lists: true},
	{Verb: RunEvents, Roles: readers, SlotKey: SlotRun},
	{Verb: EventList, Roles: readers, AnswerWithin: time.Minute},
	{Verb: RunAppend, Roles: []Role{Plugin, Operator}, AnswerWithin: 2 * time.Minute},
	{Verb: RunCancel, Roles: []Role{Operator}, SlotKey: SlotRun, Changes: true, Signal: true},
	{Verb: RunRetry, Roles: []Role{Operator}, SlotKey: SlotRun, Changes: true, Signal: true,
		AnswerWithin: 2 * time.Minute},
	{Verb: ControlPause, Roles: []Role{Operator}, Changes: true, Signal: true},
	{Verb: ControlResume, Roles: []Role{Operator}, Changes: true, Signal: true},
	{Verb: ControlGet, Roles: readers},
	{Verb: AlertList, Roles: []Role{Operator, Observer}, Lists: true},
	{Verb: AlertAck, Roles: []Role{Operator}},
	{Verb: ApprovalList, Roles: []Role{Operator, Approver, Observer}, Lists: true},
	{Verb: ApprovalDecide, Roles: []Role{Operator, Approver}, Changes: true,
		AnswerWithin: 2 * time.Minute},
	{Verb: WhoAmI, Roles: readers},
	{Verb: WorldStatus, Roles: readers, Lists: true},
	{Verb: WorldSamples, Roles: readers, Lists: true},
	{Verb: WorldClients, Roles: []Role{Operator, Observer}, Lists: true},
	{Verb: WorldsList, Roles: readers, SlotKey: SlotWorld, Lists: true},
	{Verb: WorldsCreate, Roles: []Role{Operator}, SlotKey: SlotWorld, Changes: true,
		AnswerWithin: 2 * time.Minute},
	{Verb: WorldsRemove, Roles: []Role{Operator}, SlotKey: SlotWorld, Changes: true,
		AnswerWithin: 2 * time.Minute},
}
