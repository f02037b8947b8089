// Package runlog is the authoritative side of run events: how the engine makes the events of a run (Producer), decides
// about the events that others append (State), and stores the events of a run in one message of the log (Run). Package
// runevents has the contract that it shares with everybody.
//
//	Producer ── Emit ──> Run (in the commit log) ── Records ──> RunEventRecord on the bus
//	run.append ── State.Plan ──> Run (in the commit log, on a subject of its own)
//
// The append authority stores all events of an append, or none. Every stored event has a place (runSeq, from 1) and a
// persistedAt, the time at which the log stored the message.
package runlog

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
)

// engineAttempt is the engineAttemptId of every event of the engine. NATS shows no attempts of the
// kind that the contract means, and a producer must not invent them (section 2.4).
const engineAttempt = 1

// Run is the events of one run as the commit log stores them in one message: the shared members
// once, and the rest for each event. Records gives the full events.
type Run struct {
	runevents.Identity
	// AppendedBy is the producer of the records.
	AppendedBy string `json:"appendedBy,omitzero"`
	// FirstSeq is the runSeq of the first event; the other events follow without gaps.
	FirstSeq int64   `json:"firstSeq"`
	Events   []Event `json:"events"`
}

// Event has the members that each event of a Run has of its own.
type Event struct {
	EventID          string              `json:"eventId"`
	EventType        runevents.EventType `json:"eventType"`
	StepID           string              `json:"stepId,omitzero"`
	LogicalAttemptID int64               `json:"logicalAttemptId"`
	// EngineAttemptID is 0 if the engineAttemptId of the event is 1, as most are. JSON then omits
	// it.
	EngineAttemptID int64          `json:"engineAttemptId,omitzero"`
	EmittedAt       string         `json:"emittedAt"`
	Payload         jsontext.Value `json:"payload,omitzero"`
}

// Records expands the run into records that were persisted at persistedAt. It is pure, so every
// reader of the log gets the same records.
func (r *Run) Records(persistedAt time.Time) []runevents.Record {
	records := make([]runevents.Record, len(r.Events))
	at := runevents.Timestamp(persistedAt)
	for i := range r.Events {
		records[i] = r.record(i, at)
	}
	return records
}

// record expands the ith event.
func (r *Run) record(i int, persistedAt string) runevents.Record {
	return runevents.Record{
		Write: r.write(&r.Events[i]), RunSeq: r.FirstSeq + int64(i), PersistedAt: persistedAt,
		AppendedBy: r.AppendedBy,
	}
}

// NewWrite returns an event of a run as a Write, with its idempotency key. Write.Validate checks its
// members. NewWrite is safe for concurrent use.
func NewWrite(identity runevents.Identity, e Event) runevents.Write {
	run := Run{Identity: identity}
	return run.write(&e)
}

func (r *Run) write(e *Event) runevents.Write {
	return runevents.Write{
		EventID: e.EventID, EventType: e.EventType, EmittedAt: e.EmittedAt,
		RunID: r.RunID, TenantID: r.TenantID, ProjectID: r.ProjectID,
		EnvironmentID: r.EnvironmentID, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
		EngineAttemptID:  cmp.Or(e.EngineAttemptID, engineAttempt),
		LogicalAttemptID: e.LogicalAttemptID, IdempotencyKey: key(&r.Identity, e),
		StepID: e.StepID, Payload: e.Payload,
	}
}
