package runevents

import (
	"cmp"
	"strconv"

	"worldengine/runevents/recent"
	"worldengine/trace"
)

// OncePerRun reports whether one alert with this code says of a run what there is to say: it stands
// for the run's later ones too, each of which is about another event.
func (c AlertCode) OncePerRun() bool {
	return c == InvalidTransition || c == CausalViolation || c == NonContiguousFetch
}

// Alert is an operational alert about an event of a run. Receivers treat alerts with the same ID as
// one; a projector raises each of them once, as far as its memory reaches. The members up to
// PersistedAt are those of the event, and PriorState and AttemptedState what an INVALID_TRANSITION
// was between (RunEvents v2.0.1, section 5.4). An alert that is about no single event has an empty
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
	// HandoffID is the handoff whose command is being applied, or whose receipt could not be kept.
	HandoffID string `json:"handoffId,omitzero"`
	// TownID is the town that the alert is about, where that is what it is about.
	TownID string `json:"townId,omitzero"`
	// Since is when what the alert is about began, where it can begin more than once in a run.
	Since string `json:"since,omitzero"`
	// DeadLetter is the subject at which an EVENT_BUS_DELIVERY_FAILED keeps what was given up.
	DeadLetter string `json:"deadLetter,omitzero"`
	// LogSeq is the log sequence of the commit that a COMMIT_DAMAGED is about.
	LogSeq uint64 `json:"logSeq,omitzero"`
	// AppendedBy is the producer that appended the event; "" for the engine.
	AppendedBy string `json:"appendedBy,omitzero"`
	Message    string `json:"message"`
	// At is when it was raised, by the clock of the Projector; the pure functions leave it empty.
	At string `json:"at,omitzero"`
	// Trace is that of the run, for the log line of the alert; its JSON does not have it.
	Trace trace.Context `json:"-"`
}

// ID is what makes two alerts the same: code|runId|eventId, and where there is no eventId the
// handoffId in its place, or else the subject of the dead letter or the logSeq. Where it has since it ends in
// |since, and the townId is in that place where there is no other.
func (a *Alert) ID() string {
	id := string(a.Code) + "|" + a.RunID + "|" + a.about()
	if a.Since != "" {
		id += "|" + a.Since
	}
	return id
}

// about is the part of the ID behind the run.
func (a *Alert) about() string {
	about := cmp.Or(a.EventID, a.HandoffID, a.DeadLetter)
	if a.LogSeq > 0 {
		about = strconv.FormatUint(a.LogSeq, 10)
	}
	if a.Since != "" {
		about = cmp.Or(about, a.TownID)
	}
	return about
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

// alertID is what makes two alerts the same: the parts of the ID.
type alertID struct {
	code                AlertCode
	runID, about, since string
}

// AlertFilter remembers the last alerts that went through it, so that each is raised once. It is
// safe for concurrent use.
type AlertFilter struct {
	known *recent.Map[alertID, struct{}]
}

// NewAlertFilter returns a filter that remembers at most limit alerts; DefaultMaxAlerts for 0.
func NewAlertFilter(limit int) *AlertFilter {
	return &AlertFilter{recent.NewMap[alertID, struct{}](cmp.Or(limit, DefaultMaxAlerts))}
}

// First reports whether the filter does not remember a, and makes it remember a.
func (f *AlertFilter) First(a *Alert) bool {
	return f.known.Add(alertID{a.Code, a.RunID, a.about(), a.Since}, struct{}{})
}
