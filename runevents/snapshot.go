package runevents

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Snapshot is the state of a run that a projector derived from its events (ExecutionSemantics v1,
// section 1.4). Snapshots are immutable: a projection makes a new one, which may share memory with
// the one it went on from, so no caller may write to what a snapshot refers to. Its JSON keeps
// everything, so a snapshot that was stored can be gone on from.
//
// Its times are of the producer's clock, so that differences between them are durations: the
// sourceOccurredAt of an event's payload, else its emittedAt (startedAt is the payload's own
// startedAt when RunStarted has one, v1 appendix A.1). They are not for time windows, which take
// the events' persistedAt (RunEvents v2.0.1, section 2.3).
type Snapshot struct {
	RunID  string    `json:"runId"`
	Status RunStatus `json:"status"`
	// LastEventSeq is the watermark: the highest runSeq that was taken in, 0 before the first.
	LastEventSeq int64 `json:"lastEventSeq"`
	// Steps has one entry for each (stepId, logicalAttemptId), in the order of their first valid
	// events by runSeq.
	Steps []StepSnapshot `json:"steps"`
	// Artifacts are those of all steps, then those of the run's own end, once it is COMPLETED.
	Artifacts    []Artifact `json:"artifacts"`
	EngineRunRef string     `json:"engineRunRef,omitzero"`
	StartedAt    string     `json:"startedAt,omitzero"`
	// CompletedAt is when the run ended, however it did.
	CompletedAt string `json:"completedAt,omitzero"`
	// TotalDurationMs is from StartedAt to CompletedAt and never negative.
	TotalDurationMs *int64   `json:"totalDurationMs,omitzero"`
	Metadata        Metadata `json:"metadata"`
	// SeenKeys are the idempotency keys of all known events up to the watermark, sorted: what tells
	// a duplicate under a new runSeq, and an event that came late, from a new one. See View.
	SeenKeys []string `json:"seenKeys,omitzero"`
}

// StepSnapshot is the state of one logical attempt of a step (v1, section 1.4).
type StepSnapshot struct {
	StepID           string     `json:"stepId"`
	Status           StepStatus `json:"status"`
	LogicalAttemptID int64      `json:"logicalAttemptId"`
	EngineAttemptID  int64      `json:"engineAttemptId,omitzero"` // of its last event
	StartedAt        string     `json:"startedAt,omitzero"`
	CompletedAt      string     `json:"completedAt,omitzero"` // not of a skipped one: it never ran
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

// Artifact refers to something that a run left elsewhere, never to its bytes (v1, section 2).
type Artifact struct {
	URI       string `json:"uri"`
	Kind      string `json:"kind,omitzero"`
	SHA256    string `json:"sha256,omitzero"`
	Size      int64  `json:"size,omitzero"`
	SizeBytes int64  `json:"sizeBytes,omitzero"` // what v1 calls Size
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

// Metadata is what a projector derives beyond the snapshot of the contract. The ids are those of
// the run's first valid event.
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
	// Started is the payload of RunStarted, and of RunQueued until then: what was asked for.
	Started jsontext.Value `json:"started,omitzero"`
	// Outcome is the payload of the event that ended the run: the result, or the root cause.
	Outcome jsontext.Value `json:"outcome,omitzero"`
}

// NewSnapshot returns the snapshot of a run that has no events yet.
func NewSnapshot(runID string) Snapshot {
	return Snapshot{
		RunID: runID, Status: RunPending, Steps: []StepSnapshot{}, Artifacts: []Artifact{},
		Metadata: Metadata{Consistency: Consistent}, SeenKeys: []string{},
	}
}

// View returns the snapshot as people and user interfaces read it: without SeenKeys. What it
// returns cannot be gone on from.
func (s Snapshot) View() Snapshot {
	s.SeenKeys = nil
	return s
}

// seen reports whether an event with this idempotency key was taken in.
func (s *Snapshot) seen(key string) bool {
	_, found := slices.BinarySearch(s.SeenKeys, key)
	return found
}

// clone returns a snapshot whose slices a projection of n more events may write to.
func (s Snapshot) clone(n int) Snapshot {
	s.Steps = append(make([]StepSnapshot, 0, len(s.Steps)+n/2), s.Steps...)
	s.SeenKeys = append(make([]string, 0, len(s.SeenKeys)+n), s.SeenKeys...)
	s.Metadata.IgnoredEvents = slices.Clone(s.Metadata.IgnoredEvents)
	return s
}
