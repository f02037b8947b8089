package runevents

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/trace"
)

// Write is a RunEventWrite: an event as its producer emits it. Its JSON is the contract's.
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

// Identity is what all events of one run share.
type Identity struct {
	RunID         string `json:"runId"` // UUID v4
	TenantID      string `json:"tenantId"`
	ProjectID     string `json:"projectId"`
	EnvironmentID string `json:"environmentId"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
	// Trace is that of the request which the run answers, where it had one. It is stored with the
	// run; no event has it as a member: those on the bus have it in their headers.
	Trace trace.Context `json:"trace,omitzero"`
}

// engineAttempt is the engineAttemptId of every event of the engine: NATS shows no attempts of its
// own, and a producer must not count them up artificially (section 2.4).
const engineAttempt = 1

// Run is the events of one run as one message of the commit log stores them: the envelope's
// shared members once, and for each event what is its own. Records gives the full events.
type Run struct {
	Identity
	// AppendedBy is that of the records.
	AppendedBy string `json:"appendedBy,omitzero"`
	// FirstSeq is the runSeq of the first event; the rest follow without gaps.
	FirstSeq int64   `json:"firstSeq"`
	Events   []Event `json:"events"`
}

// Event is what one event of a Run has of its own.
type Event struct {
	EventID          string    `json:"eventId"`
	EventType        EventType `json:"eventType"`
	StepID           string    `json:"stepId,omitzero"`
	LogicalAttemptID int64     `json:"logicalAttemptId"`
	// 0 for 1, which is not written
	EngineAttemptID int64          `json:"engineAttemptId,omitzero"`
	EmittedAt       string         `json:"emittedAt"`
	Payload         jsontext.Value `json:"payload,omitzero"`
}

// Records expands the run into the records that the append authority persisted at persistedAt.
// It is a pure function of the run and that time, so every reader of the log gets the same.
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

// NewWrite returns the write of an event of the run that identity names, with its idempotency key.
// The error is that of KeyFields.Validate; the other members are left to Write.Validate. It is safe
// for concurrent use.
func NewWrite(identity Identity, e Event) (Write, error) {
	run := Run{Identity: identity}
	if err := run.keyFields(&e).Validate(); err != nil {
		return Write{}, err
	}
	return run.write(&e), nil
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

// Timestamp renders t as every timestamp of an event is written: RFC 3339, UTC, milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
