package runevents

// AlertCode is the machine-readable code of an alert.
type AlertCode string

// The codes; docs/contracts.md has the meaning and the remedy of each. The contracts define the first group, and the
// engine the second.
const (
	InvalidTransition      AlertCode = "INVALID_TRANSITION"
	ProjectorLagHigh       AlertCode = "PROJECTOR_LAG_HIGH"
	NonContiguousFetch     AlertCode = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED"
	CausalViolation        AlertCode = "PROJECTOR_CAUSAL_VIOLATION"
	EventBusDeliveryFailed AlertCode = "EVENT_BUS_DELIVERY_FAILED"
	PauseDrainTimeout      AlertCode = "PAUSE_DRAIN_TIMEOUT"

	LogLost            AlertCode = "LOG_LOST"
	LogLimited         AlertCode = "LOG_LIMITED"
	StorageFailed      AlertCode = "STORAGE_FAILED"
	StorageRecovered   AlertCode = "STORAGE_RECOVERED"
	HistoryFull        AlertCode = "HISTORY_FULL"
	HistoryRecovered   AlertCode = "HISTORY_RECOVERED"
	CommitDamaged      AlertCode = "COMMIT_DAMAGED"
	TownDamaged        AlertCode = "TOWN_DAMAGED"
	ReplicaDamaged     AlertCode = "REPLICA_DAMAGED"
	TownMended         AlertCode = "TOWN_MENDED"
	ApplyInDoubt       AlertCode = "APPLY_IN_DOUBT"
	PluginDoubleAnswer AlertCode = "PLUGIN_DOUBLE_ANSWER"
	PluginLateAnswer   AlertCode = "PLUGIN_LATE_ANSWER"
	PluginStateInvalid AlertCode = "PLUGIN_STATE_INVALID"
	PluginAbsent       AlertCode = "PLUGIN_ABSENT"
	PluginReturned     AlertCode = "PLUGIN_RETURNED"
	RunLeftWaiting     AlertCode = "RUN_LEFT_WAITING"
	AlertsLost         AlertCode = "ALERTS_LOST"
)

// Severity is how urgent an alert is.
type Severity string

// The severities, the most urgent first.
const (
	P1 Severity = "P1"
	P2 Severity = "P2"
	P3 Severity = "P3"
)

// severities are those that the contracts fix. They leave INVALID_TRANSITION and PAUSE_DRAIN_TIMEOUT open; the engine
// says P2 for the first.
var severities = map[AlertCode]Severity{
	InvalidTransition: P2, ProjectorLagHigh: P2, NonContiguousFetch: P2, CausalViolation: P3, EventBusDeliveryFailed: P1,
}
