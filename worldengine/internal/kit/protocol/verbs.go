// Package protocol declares the meanings of the verbs, roles, error codes and headers of package wire, and of
// the alerts of package runevents: who may send a verb, which codes answer it, when a client asks again.
// Server, clients and generators read its tables, which are the only place of each fact. They never change.
package protocol

import (
	"time"

	"worldengine/worldengine/wire"
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

// VerbSpec declares a verb. The service, access control and the clients go by it, and
// worldengine/internal/gen writes the tables of docs/contracts.md and docs/access.md.
type VerbSpec struct {
	Verb wire.Verb
	// Roles may send the verb; the engine may send every verb.
	Roles []wire.Role
	// SlotKey is the member of the request that selects its slots: requests with the same value share
	// them. The default is SlotTown.
	SlotKey SlotKey
	// Lists is set if the verb reads through a world, so that fewer of its requests may wait.
	Lists bool
	// NonIdempotent means that a repeated request can be refused because the first one was carried out. A
	// client that got no answer, or a 503, must read the present state before it repeats such a
	// request. A handoff and a run.append have keys instead, which make a repetition safe.
	NonIdempotent bool
	// Signal is set if a refusal leaves a SignalRejected even when the sender has no right to the
	// verb. It is not set for approval.decide, which crosses from the clients' account: there, any
	// user's request may have approval.decide as its reply subject.
	Signal bool
	// AnswerTimeout is how long NATS can still carry an answer back to a client; 30 s by default.
	AnswerTimeout time.Duration
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
func Verbs() []wire.Verb {
	verbs := make([]wire.Verb, len(verbSpecs))
	for i := range verbSpecs {
		verbs[i] = verbSpecs[i].Verb
	}
	return verbs
}

// LookupVerb returns the declaration of a verb. An unknown verb gets one without roles.
func LookupVerb(v wire.Verb) *VerbSpec {
	for i := range verbSpecs {
		if verbSpecs[i].Verb == v {
			return &verbSpecs[i]
		}
	}
	return &VerbSpec{Verb: v}
}

var readers = []wire.Role{wire.Agent, wire.Plugin, wire.Operator, wire.Approver, wire.Observer}

var verbSpecs = []VerbSpec{
	{Verb: wire.Handoff, Roles: []wire.Role{wire.Agent, wire.Operator}, AnswerTimeout: 10 * time.Minute},
	{Verb: wire.TownGet, Roles: readers},
	{Verb: wire.TownHistory, Roles: readers},
	{Verb: wire.MemoryGet, Roles: readers},
	{Verb: wire.TownList, Roles: readers, Lists: true},
	{Verb: wire.TownPut, Roles: []wire.Role{wire.Plugin, wire.Operator}, NonIdempotent: true, AnswerTimeout: 2 * time.Minute},
	{Verb: wire.TownPatch, Roles: []wire.Role{wire.Plugin, wire.Operator}, NonIdempotent: true, AnswerTimeout: 2 * time.Minute},
	{Verb: wire.TownRemove, Roles: []wire.Role{wire.Operator}, NonIdempotent: true, AnswerTimeout: 2 * time.Minute},
	{Verb: wire.ResultGet, Roles: readers, SlotKey: SlotIdempotencyKey},
	{Verb: wire.RunGet, Roles: readers, SlotKey: SlotRun},
	{Verb: wire.RunList, Roles: readers, Lists: true},
	{Verb: wire.RunEvents, Roles: readers, SlotKey: SlotRun},
	{Verb: wire.EventList, Roles: readers, AnswerTimeout: time.Minute},
	{Verb: wire.RunAppend, Roles: []wire.Role{wire.Plugin, wire.Operator}, AnswerTimeout: 2 * time.Minute},
	{Verb: wire.RunCancel, Roles: []wire.Role{wire.Operator}, SlotKey: SlotRun, NonIdempotent: true, Signal: true},
	{Verb: wire.RunRetry, Roles: []wire.Role{wire.Operator}, SlotKey: SlotRun, NonIdempotent: true, Signal: true,
		AnswerTimeout: 2 * time.Minute},
	{Verb: wire.ControlPause, Roles: []wire.Role{wire.Operator}, NonIdempotent: true, Signal: true},
	{Verb: wire.ControlResume, Roles: []wire.Role{wire.Operator}, NonIdempotent: true, Signal: true},
	{Verb: wire.ControlGet, Roles: readers},
	{Verb: wire.AlertList, Roles: []wire.Role{wire.Operator, wire.Observer}, Lists: true},
	{Verb: wire.AlertAck, Roles: []wire.Role{wire.Operator}},
	{Verb: wire.ApprovalList, Roles: []wire.Role{wire.Operator, wire.Approver, wire.Observer}, Lists: true},
	{Verb: wire.ApprovalDecide, Roles: []wire.Role{wire.Operator, wire.Approver}, NonIdempotent: true,
		AnswerTimeout: 2 * time.Minute},
	{Verb: wire.WhoAmI, Roles: readers},
	{Verb: wire.WorldStatus, Roles: readers, Lists: true},
	{Verb: wire.WorldSamples, Roles: readers, Lists: true},
	{Verb: wire.WorldClients, Roles: []wire.Role{wire.Operator, wire.Observer}, Lists: true},
	{Verb: wire.WorldsList, Roles: readers, SlotKey: SlotWorld, Lists: true},
	{Verb: wire.WorldsCreate, Roles: []wire.Role{wire.Operator}, SlotKey: SlotWorld, NonIdempotent: true,
		AnswerTimeout: 2 * time.Minute},
	{Verb: wire.WorldsRemove, Roles: []wire.Role{wire.Operator}, SlotKey: SlotWorld, NonIdempotent: true,
		AnswerTimeout: 2 * time.Minute},
}
