package runevents

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Snapshot is the state of a run that a projector derived from its events (ExecutionSemantics v1,
// section 1.4). Snapshots are immutable, and a new one may share memory with the one before: no
// caller may write to its slices. The JSON of a snapshot is complete, so that a projection can go
// on from a stored snapshot.
//
// The times of a snapshot are by the producer's clock, so that their differences are durations.
// Each time is the sourceOccurredAt of an event's payload, or else the event's emittedAt. If the
// payload of RunStarted has a startedAt, that is the StartedAt (v1, appendix A.1). To find events
// in a period of time, compare their persistedAt instead (RunEvents v2.0.1, section 2.3).
type Snapshot struct {
	RunID  string    `json:"runId"`
	Status RunStatus `json:"status"`
	// LastEventSeq is the watermark: the highest applied runSeq, 0 before the first.
	LastEventSeq int64 `json:"lastEventSeq"`
	// Steps has one entry for each (stepId, logicalAttemptId), in the order of their first valid
	// events by runSeq.
	Steps []StepSnapshot `json:"steps"`
	// Artifacts is empty until the run is COMPLETED. Then it has the artifacts of all steps, and
	// after them the run's own.
	Artifacts    []Artifact `json:"artifacts"`
	EngineRunRef string     `json:"engineRunRef,omitzero"`
	StartedAt    string     `json:"startedAt,omitzero"`
	// CompletedAt is the time at which the run ended, with any status.
	CompletedAt string `json:"completedAt,omitzero"`
	// TotalDurationMs is from StartedAt to CompletedAt and never negative.
	TotalDurationMs *int64   `json:"totalDurationMs,omitzero"`
	Metadata        Metadata `json:"metadata"`
	// SeenKeys are the idempotency keys of all known events up to the watermark, sorted. They show
	// that an event with a new runSeq is a duplicate. View omits them.
	SeenKeys []string `json:"seenKeys,omitzero"`
}

// StepSnapshot is the state of one logical attempt of a step (v1, section 1.4).
type StepSnapshot struct {
	StepID           string     `json:"stepId"`
	Status           StepStatus `json:"status"`
	LogicalAttemptID int64      `json:"logicalAttemptId"`
	EngineAttemptID  int64      `json:"engineAttemptId,omitzero"` // of the attempt's last event
	StartedAt        string     `json:"startedAt,omitzero"`
	CompletedAt      string     `json:"completedAt,omitzero"` // empty if the step was skipped
	Artifacts        []Artifact `json:"artifacts"`
	Error            *StepError `json:"error,omitzero"`
	Reason           string     `json:"reason,omitzero"` // why it was skipped
}

// StepError is why a step attempt failed (v1, section 1.4).
type StepError struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// Artifact refers to data that a run stored elsewhere, and never contains it (v1, section 2).
type Artifact struct {
	URI       string `json:"uri"`
	Kind      string `json:"kind,omitzero"`
	SHA256    string `json:"sha256,omitzero"`
	Size      int64  `json:"size,omitzero"`
	SizeBytes int64  `json:"sizeBytes,omitzero"` // v1's name of Size
	// ContentType is its media type.
	ContentType string `json:"contentType,omitzero"`
	ExpiresAt   string `json:"expiresAt,omitzero"`
}

// Consistency reports whether a run's events were all valid.
type Consistency string

// The two values of Consistency. An INCONSISTENT run never becomes consistent again.
const (
	Consistent   Consistency = "CONSISTENT"
	Inconsistent Consistency = "INCONSISTENT"
)

// Metadata has the projector's additions to the contract's snapshot. The ids are from the run's
// first valid event.
type Metadata struct {
	TenantID      string `json:"tenantId,omitzero"`
	ProjectID     string `json:"projectId,omitzero"`
	EnvironmentID string `json:"environmentId,omitzero"`
	PlanID        string `json:"planId,omitzero"`
	PlanVersion   string `json:"planVersion,omitzero"`
	// AppendedBy is the producer that began the run; "" for the engine.
	AppendedBy string `json:"appendedBy,omitzero"`
	// Consistency is INCONSISTENT from the first invalid event on (RunEvents v2.0.1, section 5.3,
	// layer 3, policy A).
	Consistency Consistency `json:"consistency"`
	// IgnoredEvents are the eventIds of the invalid events, in the order of runSeq.
	IgnoredEvents []string `json:"ignoredEvents,omitzero"`
	// FailedSteps counts the step attempts that failed (v1, section 1.5, rule 3).
	FailedSteps int64 `json:"failedSteps,omitzero"`
	// Started is the request: the payload of RunStarted or, before the run starts, of RunQueued.
	Started jsontext.Value `json:"started,omitzero"`
	// Outcome is the payload of the event that ended the run: the result, or the root cause.
	Outcome jsontext.Value `json:"outcome,omitzero"`
}

// NewSnapshot returns the snapshot of a run that has no events yet.
func NewSnapshot(runID string) Snapshot {
	return Snapshot{
		RunID: runID, Status: RunStatusPending, Steps: []StepSnapshot{}, Artifacts: []Artifact{},
		Metadata: Metadata{Consistency: Consistent}, SeenKeys: []string{},
	}
}

// View returns the snapshot for people and user interfaces: without SeenKeys. A projection cannot
// go on from it.
func (s Snapshot) View() Snapshot {
	s.SeenKeys = nil
	return s
}

// clone returns a snapshot whose slices a projection of n more events may write to.
func (s Snapshot) clone(n int) Snapshot {
	s.Steps = append(make([]StepSnapshot, 0, len(s.Steps)+n/2), s.Steps...)
	s.SeenKeys = append(make([]string, 0, len(s.SeenKeys)+n), s.SeenKeys...)
	s.Metadata.IgnoredEvents = slices.Clone(s.Metadata.IgnoredEvents)
	return s
}
