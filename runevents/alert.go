package runevents

import (
	"cmp"

	"worldengine/runevents/recent"
	"worldengine/trace"
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

// The engine's own alerts about a town that no plugin is subscribed for. They have the townId, and
// the run and handoff whose command found it so.
const (
	// PluginAbsent: commands of the town wait, or fail, until PluginReturned.
	PluginAbsent AlertCode = "PLUGIN_ABSENT"
	// PluginReturned: the town has a plugin again.
	PluginReturned AlertCode = "PLUGIN_RETURNED"
)

// LogLost is the engine's own alert that the log does not have what a stream was derived from: it
// has lost its end, or an older one was put in its place. No handoff is judged before fsck
// --repair.
const LogLost AlertCode = "LOG_LOST"

// TownMended is the alert of fsck --repair that it put a town back to its last readable record.
const TownMended AlertCode = "TOWN_MENDED"

// The engine's own alerts about its disk.
const (
	// StorageFailed: the disk is full, or refused a write. Nothing is stored until
	// StorageRecovered.
	StorageFailed AlertCode = "STORAGE_FAILED"
	// StorageRecovered: the engine stores again.
	StorageRecovered AlertCode = "STORAGE_RECOVERED"
)

// The engine's own alerts, about the application of a command by a game. They have the runId of the
// run that applies it and its handoffId, and an eventId only where they are about one event.
const (
	// PluginLateAnswer: a game answered for a command after the engine had given it up, so game and
	// engine may disagree about whether it happened.
	PluginLateAnswer AlertCode = "PLUGIN_LATE_ANSWER"
	// PluginDoubleAnswer: more plugins than one answered that they applied a command to a town.
	PluginDoubleAnswer AlertCode = "PLUGIN_DOUBLE_ANSWER"
	// PluginStateInvalid: the state that a game reported for a town cannot be one.
	PluginStateInvalid AlertCode = "PLUGIN_STATE_INVALID"
	// ApplyInDoubt: the engine cannot find out whether a game has applied a command.
	ApplyInDoubt AlertCode = "APPLY_IN_DOUBT"
)

// RunLeftWaiting is the engine's own alert about the run of a handoff that waited in a server which
// died. Another server, or the same one after its start, cancels the run.
const RunLeftWaiting AlertCode = "RUN_LEFT_WAITING"

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
	case EventBusDeliveryFailed, PluginLateAnswer, PluginDoubleAnswer, ApplyInDoubt, LogLost,
		TownMended, StorageFailed:
		return P1
	case CausalViolation, PauseDrainTimeout, StorageRecovered, RunLeftWaiting, PluginReturned:
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
	// TownID is the town that the alert is about, where that is what it is about.
	TownID string `json:"townId,omitzero"`
	// Since is when what the alert is about began, where it can begin more than once in a run.
	Since string `json:"since,omitzero"`
	// DeadLetter is the subject at which an EVENT_BUS_DELIVERY_FAILED keeps what was given up.
	DeadLetter string `json:"deadLetter,omitzero"`
	Message    string `json:"message"`
	// At is when it was raised, by the clock of the Projector; the pure functions leave it empty.
	At string `json:"at,omitzero"`
	// Trace is that of the run, for the log line of the alert; its JSON does not have it.
	Trace trace.Context `json:"-"`
}

// ID is what makes two alerts the same: code|runId|eventId, and where there is no eventId the
// handoffId in its place, or else the subject of the dead letter. Where it has since it ends in
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
		RunSeq: r.RunSeq, PersistedAt: r.PersistedAt, Message: message,
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
