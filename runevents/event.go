package runevents

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/trace"
)

// Write is a RunEventWrite: an event as its producer emits it (RunEvents v2.0.1, section 2). Validate says whether its
// members have these forms.
type Write struct {
	EventID   string    `json:"eventId"` // UUID v4 in lower case, the same for each retry
	EventType EventType `json:"eventType"`
	EmittedAt string    `json:"emittedAt"` // RFC 3339 UTC, the producer's clock
	RunID     string    `json:"runId"`     // 1 to MaxRunID bytes without |
	// The next five members are the same in all events of a run.
	TenantID      string `json:"tenantId"`
	ProjectID     string `json:"projectId"`
	EnvironmentID string `json:"environmentId"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
	// EngineAttemptID is the provider's number of an attempt, LogicalAttemptID the planner's; both from 1.
	EngineAttemptID  int64 `json:"engineAttemptId"`
	LogicalAttemptID int64 `json:"logicalAttemptId"`
	// IdempotencyKey is the IdempotencyKey of the write's KeyFields. A run has one event with it.
	IdempotencyKey string         `json:"idempotencyKey"`
	StepID         string         `json:"stepId,omitzero"`  // "" for an event of the run
	Payload        jsontext.Value `json:"payload,omitzero"` // an object, which fits the schema of a known type; or nil
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

// Timestamp formats a time as events have it: RFC 3339, UTC, milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Appended is an append authority's answer to a write: the ID, the place and the time of the stored
// event. The producer uses this EventID instead of its own.
type Appended struct {
	EventID     string `json:"eventId"`
	RunSeq      int64  `json:"runSeq"`
	PersistedAt string `json:"persistedAt"`
	// Idempotent says that the run had an event with the same idempotencyKey: nothing was stored.
	Idempotent bool `json:"idempotent"`
}
