package schemas

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Name names one schema of this package, e.g. "execution-handoff.v1": its document without
// ".schema.json". It ends in the major version of the payload. The schema of a run event's payload
// has the name of the event's type, such as "StepFailed".
type Name string

// The schemas of this package. A request is exact, so that a misspelt member is refused; a reply
// tolerates unknown members, so that an older client can read a newer server.
const (
	// ExecutionHandoff is an agent's request to execute a proposal.
	ExecutionHandoff Name = "execution-handoff.v1"
	// Proposal is the advice inside a handoff.
	Proposal Name = "proposal.v2"
	// ExecutionResult is the world engine's decision about a handoff.
	ExecutionResult Name = "execution-result.v1"
	// ExecutionResult1 is revision 1 of an ExecutionResult; tolerant.
	ExecutionResult1 Name = "execution-result-revision-1.v1"
	// Snapshot is the authoritative state of one town.
	Snapshot Name = "snapshot.v1"
	// RunEventWrite is a run event as its producer hands it to the append authority; exact.
	RunEventWrite Name = "run-event-write.v2"
	// RunEventRecord is a run event as the append authority persisted it; tolerant.
	RunEventRecord Name = "run-event-record.v2"
	// Artifact is a reference to a step's data elsewhere; exact, so that it never holds its bytes.
	Artifact Name = "artifact.v1"
	// Error is the body of every error reply.
	Error Name = "error.v1"
	// TownGetRequest asks for the state of a town.
	TownGetRequest Name = "town-get-request.v1"
	// TownGetReply is the state of a town; it answers town.put as well.
	TownGetReply Name = "town-get-reply.v1"
	// TownHistoryRequest asks for a page of the revisions of a town.
	TownHistoryRequest Name = "town-history-request.v1"
	// TownHistoryReply is a page of the revisions of a town.
	TownHistoryReply Name = "town-history-reply.v1"
	// MemoryRequest asks for the memory of a town, or of the world.
	MemoryRequest Name = "world-memory-request.v1"
	// MemoryContext is the memory of a town, or of the world; exact, since agents drop another.
	MemoryContext Name = "world-memory-context.v1"
	// TownListRequest asks for a page of the list of towns.
	TownListRequest Name = "town-list-request.v1"
	// TownListReply is a page of the list of towns.
	TownListReply Name = "town-list-reply.v1"
	// TownPutRequest creates a town, or replaces exactly one state of it.
	TownPutRequest Name = "town-put-request.v1"
	// TownPatchRequest changes members of exactly one state of a town.
	TownPatchRequest Name = "town-patch-request.v1"
	// TownRemoveRequest removes a town.
	TownRemoveRequest Name = "town-remove-request.v1"
	// TownRemoveReply is the last state of a town that was removed.
	TownRemoveReply Name = "town-remove-reply.v1"
	// ResultGetRequest asks for the result that a key was accepted with.
	ResultGetRequest Name = "result-get-request.v1"
	// ResultGetReply is the result that a key was accepted with.
	ResultGetReply Name = "result-get-reply.v1"
	// RunEventsRequest asks for a page of the events of a run.
	RunEventsRequest Name = "run-events-request.v1"
	// RunEventsReply is a page of the events of a run.
	RunEventsReply Name = "run-events-reply.v1"
	// RunGetRequest asks for the state of a run.
	RunGetRequest Name = "run-get-request.v1"
	// RunGetReply is the state of a run: a RunSnapshot.
	RunGetReply Name = "run-get-reply.v1"
	// RunListRequest asks for a page of the list of runs.
	RunListRequest Name = "run-list-request.v1"
	// RunListReply is a page of the list of runs.
	RunListReply Name = "run-list-reply.v1"
	// EventListRequest asks for a page of the commits of the log.
	EventListRequest Name = "event-list-request.v1"
	// EventListReply is a page of the commits of the log.
	EventListReply Name = "event-list-reply.v1"
	// Commit is a commit of the log as its readers see it, live and in pages; tolerant.
	Commit Name = "commit.v1"
	// RunAppendRequest asks the append authority to persist events of a run.
	RunAppendRequest Name = "run-append-request.v1"
	// ControlSignalRequest pauses or resumes a town, or the whole world.
	ControlSignalRequest Name = "control-signal-request.v1"
	// ControlGetRequest asks whether a town, or the whole world, is paused.
	ControlGetRequest Name = "control-get-request.v1"
	// ControlReply says whether a town, or the whole world, is paused.
	ControlReply Name = "control-reply.v1"
	// AlertListRequest asks for a page of the alerts.
	AlertListRequest Name = "alert-list-request.v1"
	// AlertListReply is a page of the alerts.
	AlertListReply Name = "alert-list-reply.v1"
	// AlertAckRequest acknowledges an alert.
	AlertAckRequest Name = "alert-ack-request.v1"
	// AlertAckReply is the alert with its acknowledgement.
	AlertAckReply Name = "alert-ack-reply.v1"
	// ApprovalListRequest asks for a page of the proposals that wait for a person's approval.
	ApprovalListRequest Name = "approval-list-request.v1"
	// ApprovalListReply is a page of the proposals that wait for a person's approval.
	ApprovalListReply Name = "approval-list-reply.v1"
	// ApprovalDecideRequest approves or denies a proposal.
	ApprovalDecideRequest Name = "approval-decide-request.v1"
	// ApprovalDecideReply is the decision about a proposal, and the result if it has one.
	ApprovalDecideReply Name = "approval-decide-reply.v1"
	// WhoAmIRequest asks for the sender's rights.
	WhoAmIRequest Name = "whoami-request.v1"
	// WhoAmIReply has the sender's rights.
	WhoAmIReply Name = "whoami-reply.v1"
	// WorldStatusRequest asks how the world is.
	WorldStatusRequest Name = "world-status-request.v1"
	// WorldStatusReply is how the world is.
	WorldStatusReply Name = "world-status-reply.v1"
	// WorldSamplesRequest asks for samples of the last minutes.
	WorldSamplesRequest Name = "world-samples-request.v1"
	// WorldSamplesReply is samples of the last minutes.
	WorldSamplesReply Name = "world-samples-reply.v1"
	// WorldClientsRequest asks who is connected.
	WorldClientsRequest Name = "world-clients-request.v1"
	// WorldClientsReply says who is connected.
	WorldClientsReply Name = "world-clients-reply.v1"
	// RunCancelRequest cancels a run that waits for the end of a pause.
	RunCancelRequest Name = "run-cancel-request.v1"
	// RunRetryRequest tries the handoff of a run again that failed because no plugin or console was
	// reachable.
	RunRetryRequest Name = "run-retry-request.v1"
	// RunRetryReply names the retry's run, and has its result if there is one.
	RunRetryReply Name = "run-retry-reply.v1"
	// CommandApply asks a game server's plugin to apply an accepted command; tolerant.
	CommandApply Name = "command-apply.v1"
	// CommandApplied is a plugin's answer to a CommandApply; tolerant.
	CommandApplied Name = "command-applied.v1"
	// RunAppendReply has the persisted events, old and new.
	RunAppendReply Name = "run-append-reply.v1"
)

// ErrUnknownSchema is returned by Source, Validate and Parse for an unknown Name. It is a mistake
// in the program, not in a payload: it is never a *ValidationError.
var ErrUnknownSchema = errors.New("schemas: unknown schema")

const suffix = ".schema.json"

//go:embed *.schema.json
var documents embed.FS

// sources holds every embedded document by its name; read-only after init.
var sources = readSources()

// Names returns the names of all schemas, sorted.
func Names() []Name {
	return slices.Sorted(maps.Keys(sources))
}

// RequestOf returns the name of the schema of the requests of a verb, such as "town.get".
func RequestOf(verb string) Name {
	switch verb {
	case "handoff":
		return ExecutionHandoff
	case "memory.get":
		return MemoryRequest
	case "control.pause", "control.resume":
		return ControlSignalRequest
	}
	return Name(strings.ReplaceAll(verb, ".", "-") + "-request.v1")
}

// Source returns a copy of n's embedded schema document. It fails with ErrUnknownSchema if there is
// none.
func Source(n Name) ([]byte, error) {
	doc, ok := sources[n]
	if !ok {
		return nil, unknown(n)
	}
	return slices.Clone(doc), nil
}

func unknown(n Name) error {
	return fmt.Errorf("%w %q", ErrUnknownSchema, string(n))
}

func readSources() map[Name][]byte {
	entries, err := documents.ReadDir(".")
	if err != nil {
		panic(err)
	}
	out := make(map[Name][]byte, len(entries))
	for _, e := range entries {
		doc, err := documents.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		out[Name(strings.TrimSuffix(e.Name(), suffix))] = doc
	}
	return out
}
