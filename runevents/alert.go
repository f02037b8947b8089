package runevents

import (
	"cmp"
	"strconv"

	"worldengine/trace"
)

// Alert is an operational alert about an event of a run. Receivers treat alerts with the same ID as
// one. The members from RunID to PersistedAt are the event's. Only INVALID_TRANSITION has
// PriorState and AttemptedState (RunEvents v2.0.1, section 5.4). An alert that is not about one
// event has an empty EventID. It may have a HandoffID, DeadLetter or LogSeq instead.
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
	// Since is the time at which the condition began. It is set only if the same condition can
	// begin again later.
	Since string `json:"since,omitzero"`
	// DeadLetter is the subject of the dead letter that an EVENT_BUS_DELIVERY_FAILED is about.
	DeadLetter string `json:"deadLetter,omitzero"`
	// LogSeq is the log sequence of the commit that a COMMIT_DAMAGED is about.
	LogSeq uint64 `json:"logSeq,omitzero"`
	// AppendedBy is the producer that appended the event; "" for the engine.
	AppendedBy string `json:"appendedBy,omitzero"`
	Message    string `json:"message"`
	// At is the time of the alert; pure functions leave it empty.
	At string `json:"at,omitzero"`
	// Trace is the trace of the run, for the alert's log line; JSON omits it.
	Trace trace.Context `json:"-"`
}

// ID identifies an alert: code|runId|subject[|since]. The subject is the first of logSeq, eventId,
// handoffId and deadLetter that the alert has. If it has none of them, but a since, the subject is
// the townId. An alert without a run, a subject and a since, such as STORAGE_FAILED, has its time as
// the subject, since its condition can begin again.
func (a *Alert) ID() string {
	about := cmp.Or(a.EventID, a.HandoffID, a.DeadLetter)
	if a.LogSeq > 0 {
		about = strconv.FormatUint(a.LogSeq, 10)
	}
	id := string(a.Code) + "|" + a.RunID + "|"
	if a.Since == "" {
		if a.RunID == "" {
			about = cmp.Or(about, a.At)
		}
		return id + about
	}
	return id + cmp.Or(about, a.TownID) + "|" + a.Since
}

// NewAlert returns an alert about r. Its severity is the one that the contracts fix, or "".
func NewAlert(code AlertCode, r *Record, message string) Alert {
	return Alert{
		Code: code, Severity: severities[code], RunID: r.RunID, TenantID: r.TenantID,
		ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID, EventID: r.EventID,
		EventType: r.EventType, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
		RunSeq: r.RunSeq, PersistedAt: r.PersistedAt, AppendedBy: r.AppendedBy, Message: message,
	}
}
