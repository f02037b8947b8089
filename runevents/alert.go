package runevents

import (
	"cmp"
	"strconv"

	"worldengine/trace"
)

// OncePerRun reports whether one alert with this code stands for all later ones of its run.
func (c AlertCode) OncePerRun() bool {
	return c == InvalidTransition || c == CausalViolation || c == NonContiguousFetch
}

// Alert is an operational alert about an event of a run. Receivers treat alerts with the same ID as
// one. The event gives the members up to PersistedAt. PriorState and AttemptedState belong to
// INVALID_TRANSITION (RunEvents v2.0.1, section 5.4). An alert about no single event has an empty
// eventId, and HandoffID or DeadLetter instead.
type Alert struct {
	Code             AlertCode `json:"code"`
	Severity         Severity  `json:"severity"`
	RunID            string    `json:"runId"`
	TenantID         string    `json:"tenantId"`
	ProjectID        string    `json:"projectId"`
	EnvironmentID    string    `json:"environmentId"`
	EventID          string    `json:"eventId"`
	EventType        EventType `json:"eventType"`
	StepID           string    `json:"stepId,omitzero"`
	LogicalAttemptID int64     `json:"logicalAttemptId"`
	RunSeq           int64     `json:"runSeq"`
	PersistedAt      string    `json:"persistedAt"`
	PriorState       string    `json:"priorState,omitzero"`
	AttemptedState   string    `json:"attemptedState,omitzero"`
	// HandoffID is the handoff whose command is being applied, or whose receipt was lost.
	HandoffID string `json:"handoffId,omitzero"`
	// TownID is the town, if the alert is about one.
	TownID string `json:"townId,omitzero"`
	// Since is the start of the condition, if a run can have it more than once.
	Since string `json:"since,omitzero"`
	// DeadLetter is the subject at which an EVENT_BUS_DELIVERY_FAILED keeps the event.
	DeadLetter string `json:"deadLetter,omitzero"`
	// LogSeq is the log sequence of a COMMIT_DAMAGED's commit.
	LogSeq uint64 `json:"logSeq,omitzero"`
	// AppendedBy is the producer that appended the event; "" for the engine.
	AppendedBy string `json:"appendedBy,omitzero"`
	Message    string `json:"message"`
	// At is the time of the alert; pure functions leave it empty.
	At string `json:"at,omitzero"`
	// Trace is the trace of the run, for the alert's log line; JSON omits it.
	Trace trace.Context `json:"-"`
}

// ID identifies an alert: code|runId|subject[|since]. The subject is the first that the alert has of
// logSeq, eventId, handoffId and the dead letter's subject, and if it has a since, the townId.
func (a *Alert) ID() string {
	about := cmp.Or(a.EventID, a.HandoffID, a.DeadLetter)
	if a.LogSeq > 0 {
		about = strconv.FormatUint(a.LogSeq, 10)
	}
	id := string(a.Code) + "|" + a.RunID + "|"
	if a.Since == "" {
		return id + about
	}
	return id + cmp.Or(about, a.TownID) + "|" + a.Since
}

// NewAlert returns an alert about r.
func NewAlert(code AlertCode, r *Record, message string) Alert {
	return Alert{
		Code: code, Severity: code.Severity(), RunID: r.RunID, TenantID: r.TenantID,
		ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID, EventID: r.EventID,
		EventType: r.EventType, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
		RunSeq: r.RunSeq, PersistedAt: r.PersistedAt, AppendedBy: r.AppendedBy, Message: message,
	}
}
