package runevents

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/trace"
)

// Write is a RunEventWrite: an event as its producer emits it. Its JSON is as the contract says.
type Write struct {
	EventID          string         `json:"eventId"` // UUID v4
	EventType        EventType      `json:"eventType"`
	EmittedAt        string         `json:"emittedAt"` // RFC 3339 UTC, the producer's clock
	RunID            string         `json:"runId"`
	TenantID         string         `json:"tenantId"`
	ProjectID        string         `json:"projectId"`
	EnvironmentID    string         `json:"environmentId"`
	PlanID           string         `json:"planId"`
	PlanVersion      string         `json:"planVersion"`
	EngineAttemptID  int64          `json:"engineAttemptId"`
	LogicalAttemptID int64          `json:"logicalAttemptId"`
	IdempotencyKey   string         `json:"idempotencyKey"`
	StepID           string         `json:"stepId,omitzero"`
	Payload          jsontext.Value `json:"payload,omitzero"`
}

// Record is a RunEventRecord: an event as the append authority persisted it. It never changes.
type Record struct {
	Write       `json:",inline"`
	RunSeq      int64  `json:"runSeq"`      // strictly increasing within the run, from 1
	PersistedAt string `json:"persistedAt"` // RFC 3339 UTC, the append authority's clock
	// AppendedBy is the producer that appended the event; "" for the engine.
	AppendedBy string `json:"appendedBy,omitzero"`
}

// Identity has the members that all events of a run share.
type Identity struct {
	RunID         string `json:"runId"` // a UUID v4 if the engine made the run
	TenantID      string `json:"tenantId"`
	ProjectID     string `json:"projectId"`
	EnvironmentID string `json:"environmentId"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
	// Trace is the trace of the request that the run answers, if the request had one. The log
	// stores the trace with the run. On the bus it is in the headers of a message, not in the
	// event.
	Trace trace.Context `json:"trace,omitzero"`
}

// engineAttempt is the engineAttemptId of every event of the engine. NATS shows no attempts of the
// kind that the contract means, and a producer must not invent them (section 2.4).
const engineAttempt = 1

// Run is the events of one run as the commit log stores them in one message: the shared members
// once, and the rest for each event. Records gives the full events.
type Run struct {
	Identity
	// AppendedBy is the producer of the records.
	AppendedBy string `json:"appendedBy,omitzero"`
	// FirstSeq is the runSeq of the first event; the other events follow without gaps.
	FirstSeq int64   `json:"firstSeq"`
	Events   []Event `json:"events"`
}

// Event has the members that each event of a Run has of its own.
type Event struct {
	EventID          string    `json:"eventId"`
	EventType        EventType `json:"eventType"`
	StepID           string    `json:"stepId,omitzero"`
	LogicalAttemptID int64     `json:"logicalAttemptId"`
	// EngineAttemptID is 0 if the engineAttemptId of the event is 1, as most are. JSON then omits
	// it.
	EngineAttemptID int64          `json:"engineAttemptId,omitzero"`
	EmittedAt       string         `json:"emittedAt"`
	Payload         jsontext.Value `json:"payload,omitzero"`
}

// Records expands the run into records that were persisted at persistedAt. It is pure, so every
// reader of the log gets the same records.
func (r *Run) Records(persistedAt time.Time) []Record {
	records := make([]Record, len(r.Events))
	at := Timestamp(persistedAt)
	for i := range r.Events {
		records[i] = r.record(i, at)
	}
	return records
}

// record expands the ith event.
func (r *Run) record(i int, persistedAt string) Record {
	return Record{
		Write: r.write(&r.Events[i]), RunSeq: r.FirstSeq + int64(i), PersistedAt: persistedAt,
		AppendedBy: r.AppendedBy,
	}
}

// NewWrite returns an event of a run as a Write, with its idempotency key. Write.Validate checks its
// members. NewWrite is safe for concurrent use.
func NewWrite(identity Identity, e Event) Write {
	run := Run{Identity: identity}
	return run.write(&e)
}

func (r *Run) write(e *Event) Write {
	return Write{
		EventID: e.EventID, EventType: e.EventType, EmittedAt: e.EmittedAt,
		RunID: r.RunID, TenantID: r.TenantID, ProjectID: r.ProjectID,
		EnvironmentID: r.EnvironmentID, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
		EngineAttemptID:  cmp.Or(e.EngineAttemptID, engineAttempt),
		LogicalAttemptID: e.LogicalAttemptID, IdempotencyKey: IdempotencyKey(r.keyFields(e)),
		StepID: e.StepID, Payload: e.Payload,
	}
}

func (r *Run) keyFields(e *Event) KeyFields {
	return KeyFields{
		RunID: r.RunID, StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID,
		EventType: e.EventType, PlanID: r.PlanID, PlanVersion: r.PlanVersion,
	}
}

// Timestamp formats a time as events have it: RFC 3339, UTC, milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
