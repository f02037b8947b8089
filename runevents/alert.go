package runevents

import (
	"cmp"
	"sync"
)

// AlertCode is the machine-readable code of an alert.
type AlertCode string

// The alerts of the contracts.
const (
	// InvalidTransition: an event that its run or step cannot make from where it is was ignored
	// (RunEvents v2.0.1, section 5.4).
	InvalidTransition AlertCode = "INVALID_TRANSITION"
	// ProjectorLagHigh: projections are more than 5 s behind what was persisted (v1, section 1.4).
	ProjectorLagHigh AlertCode = "PROJECTOR_LAG_HIGH"
	// NonContiguousFetch: a projector was given an event that does not follow the last one it had
	// of the run. It hints at lag, not at loss (v1, sections 1.0 and 1.5).
	NonContiguousFetch AlertCode = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED"
	// CausalViolation: an effect has a lower runSeq than its cause. It asks for nothing unless it
	// persists (v1, section 1.0.1).
	CausalViolation AlertCode = "PROJECTOR_CAUSAL_VIOLATION"
	// EventBusDeliveryFailed: an event was given up on its way to the bus (v1, section 4).
	EventBusDeliveryFailed AlertCode = "EVENT_BUS_DELIVERY_FAILED"
	// PauseDrainTimeout: a run was paused while tasks in flight had not ended (v1, section 6).
	PauseDrainTimeout AlertCode = "PAUSE_DRAIN_TIMEOUT"
)

// LogLost is the engine's own alert that the log does not have what a stream was derived from: it has
// lost its end, or an older one was put in its place. No handoff is judged before fsck --repair.
const LogLost AlertCode = "LOG_LOST"

// The engine's own alerts, about the application of a command by a game. They have the runId of the
// run that applies it and its handoffId, and an eventId only where they are about one event.
const (
	// PluginLateAnswer: a game answered for a command after the engine had given it up, so game and
	// engine may disagree about whether it happened.
	PluginLateAnswer AlertCode = "PLUGIN_LATE_ANSWER"
	// PluginStateInvalid: the state that a game reported for a town cannot be one.
	PluginStateInvalid AlertCode = "PLUGIN_STATE_INVALID"
	// ApplyInDoubt: nobody knows whether a game has applied a command.
	ApplyInDoubt AlertCode = "APPLY_IN_DOUBT"
)

// Severity is how urgent an alert is.
type Severity string

// The severities, the most urgent first.
const (
	P1 Severity = "P1"
	P2 Severity = "P2"
	P3 Severity = "P3"
)

// Severity returns the severity of the alerts with this code: the contract's; where the contracts
// leave it open P2 for INVALID_TRANSITION and P3 for PAUSE_DRAIN_TIMEOUT; of the engine's own P1
// where game and engine may disagree or the log is damaged, and P2 for a state that was refused.
func (c AlertCode) Severity() Severity {
	switch c {
	case EventBusDeliveryFailed, PluginLateAnswer, ApplyInDoubt, LogLost:
		return P1
	case CausalViolation, PauseDrainTimeout:
		return P3
	}
	return P2
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
	// DeadLetter is the subject at which an EVENT_BUS_DELIVERY_FAILED keeps what was given up.
	DeadLetter string `json:"deadLetter,omitzero"`
	Message    string `json:"message"`
	// At is when it was raised, by the clock of the Projector; the pure functions leave it empty.
	At string `json:"at,omitzero"`
}

// ID is what makes two alerts the same: code|runId|eventId, and where there is no eventId the
// handoffId in its place, or else the subject of the dead letter.
func (a *Alert) ID() string {
	return string(a.Code) + "|" + a.RunID + "|" + cmp.Or(a.EventID, a.HandoffID, a.DeadLetter)
}

// NewAlert returns an alert about r.
func NewAlert(code AlertCode, r *Record, message string) Alert {
	return Alert{
		Code: code, Severity: code.Severity(), RunID: r.RunID, TenantID: r.TenantID,
		ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID, EventID: r.EventID,
		EventType: r.EventType, StepID: r.StepID, LogicalAttemptID: r.LogicalAttemptID,
		RunSeq: r.RunSeq, PersistedAt: r.PersistedAt, Message: message,
	}
}

// alertID is what makes two alerts the same.
type alertID struct {
	code    AlertCode
	runID   string
	eventID string
}

// AlertFilter remembers the last alerts that went through it, so that each is raised once. It is
// safe for concurrent use.
type AlertFilter struct {
	limit int

	mu    sync.Mutex
	known map[alertID]struct{}
	order []alertID // a ring once it is full
	next  int
}

// NewAlertFilter returns a filter that remembers so many alerts; DefaultMaxAlerts for 0.
func NewAlertFilter(limit int) *AlertFilter {
	return &AlertFilter{limit: cmp.Or(limit, DefaultMaxAlerts), known: make(map[alertID]struct{})}
}

// First says whether a is not one of those remembered, and remembers it.
func (f *AlertFilter) First(a *Alert) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := alertID{a.Code, a.RunID, a.EventID}
	if _, ok := f.known[id]; ok {
		return false
	}
	f.known[id] = struct{}{}
	if len(f.order) < f.limit {
		f.order = append(f.order, id)
		return true
	}
	delete(f.known, f.order[f.next])
	f.order[f.next] = id
	f.next = (f.next + 1) % f.limit
	return true
}
