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

// Schemas of this package; RequestOf and ReplyOf name the other schemas of verbs. A request is
// exact, so that a misspelt member is refused; a reply tolerates unknown members, so that an older
// client can read a newer server.
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
	// Artifact is a reference to a step's data elsewhere; exact, so that it never contains the data
	// itself.
	Artifact Name = "artifact.v1"
	// Error is the body of every error reply.
	Error Name = "error.v1"
	// TownGetRequest asks for the state of a town.
	TownGetRequest Name = "town-get-request.v1"
	// TownGetReply is the state of a town; it answers town.put as well.
	TownGetReply Name = "town-get-reply.v1"
	// MemoryRequest asks for the memory of a town, or of the world.
	MemoryRequest Name = "world-memory-request.v1"
	// MemoryContext is the memory of a town, or of the world; exact, since agents drop one with
	// other members.
	MemoryContext Name = "world-memory-context.v1"
	// TownListRequest asks for a page of the list of towns.
	TownListRequest Name = "town-list-request.v1"
	// TownPutRequest creates a town, or replaces exactly one state of it.
	TownPutRequest Name = "town-put-request.v1"
	// TownPatchRequest changes members of exactly one state of a town.
	TownPatchRequest Name = "town-patch-request.v1"
	// ResultGetReply is the result with which a key was accepted.
	ResultGetReply Name = "result-get-reply.v1"
	// RunEventsRequest asks for a page of the events of a run.
	RunEventsRequest Name = "run-events-request.v1"
	// RunGetReply is the state of a run: a RunSnapshot.
	RunGetReply Name = "run-get-reply.v1"
	// RunListRequest asks for a page of the list of runs.
	RunListRequest Name = "run-list-request.v1"
	// Commit is a commit of the log as its readers see it, live and in pages; tolerant.
	Commit Name = "commit.v1"
	// RunAppendRequest asks the append authority to persist events of a run.
	RunAppendRequest Name = "run-append-request.v1"
	// ControlSignalRequest pauses or resumes a town, or the whole world.
	ControlSignalRequest Name = "control-signal-request.v1"
	// ControlReply says whether a town, or the whole world, is paused.
	ControlReply Name = "control-reply.v1"
	// CommandApply asks a game server's plugin to apply an accepted command; tolerant.
	CommandApply Name = "command-apply.v1"
	// CommandApplied is a plugin's answer to a CommandApply; tolerant.
	CommandApplied Name = "command-applied.v1"
)

// ErrUnknownSchema is returned by Source, Validate and Parse for an unknown Name. It is a mistake
// in the program, not in a payload: it is never a *ValidationError.
var ErrUnknownSchema = errors.New("schemas: unknown schema")

const suffix = ".schema.json"

//go:embed *.schema.json
var documents embed.FS

// sources has every embedded document by its name; read-only after init.
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

// ReplyOf returns the name of the schema of the replies of a verb.
func ReplyOf(verb string) Name {
	switch verb {
	case "handoff":
		return ExecutionResult
	case "memory.get":
		return MemoryContext
	case "town.put", "town.patch":
		return TownGetReply
	case "control.pause", "control.resume", "control.get", "run.cancel":
		return ControlReply
	}
	return Name(strings.ReplaceAll(verb, ".", "-") + "-reply.v1")
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

//go:embed asyncapi.json
var asyncAPI string

// AsyncAPI returns the AsyncAPI 3.0 document of a world: the verbs, events, plugin requests and errors, with the
// schemas of this package.
func AsyncAPI() string { return asyncAPI }
