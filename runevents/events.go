package runevents

import (
	"slices"
)

// EventType is the kind of an event. The set is open: consumers tolerate types they do not know.
type EventType string

// The lifecycle events of RunEvents v2.0.1 (section 1.2), and three events of ExecutionSemantics v1
// (section 1.2): RunApproved, and the decisions about signals. RunEvents v2 does not list these
// three, so its consumers treat them as unknown types.
const (
	RunQueued      EventType = "RunQueued"
	RunApproved    EventType = "RunApproved"
	RunStarted     EventType = "RunStarted"
	RunPaused      EventType = "RunPaused"
	RunResumed     EventType = "RunResumed"
	RunCompleted   EventType = "RunCompleted"
	RunFailed      EventType = "RunFailed"
	RunCancelled   EventType = "RunCancelled"
	StepStarted    EventType = "StepStarted"
	StepCompleted  EventType = "StepCompleted"
	StepFailed     EventType = "StepFailed"
	StepSkipped    EventType = "StepSkipped"
	SignalAccepted EventType = "SignalAccepted"
	SignalRejected EventType = "SignalRejected"
)

// EventSpec declares an event type. Transitions, projections and readers use it, and
// worldengine/internal/gen writes the lists of the schemas, of the JavaScript client and of the console.
// The payload's schema has the name of the type.
type EventSpec struct {
	Type  EventType
	Level Level
	// From has the statuses, of the run or of the step attempt, in which the event is valid. To is
	// the status that follows. If Stays is set, the status stays as it is instead.
	From  []string
	To    string
	Stays bool
	// EngineOnly says that only the engine may emit the event.
	EngineOnly bool
	// Tone is how readers show the event: "bad", "wait" or "".
	Tone string
}

// Level says if an event is about a run, a step or a signal.
type Level int

// The levels. For an event about a signal, a consumer changes no status.
const (
	RunLevel Level = iota + 1
	StepLevel
	SignalLevel
)

// The column To is from RunEvents v2.0.1 (sections 5.1 and 5.2). The column From is from
// ExecutionSemantics v1 (section 1.2), with two additions, because RunEvents v2 has no RunApproved:
// RunStarted is valid in PENDING too, and RunQueued is valid until the run starts.
var eventSpecs = []EventSpec{
	{Type: RunQueued, Level: RunLevel, From: texts(RunStatusPending, RunStatusApproved), To: "PENDING", Stays: true,
		EngineOnly: true},
	{Type: RunApproved, Level: RunLevel, From: texts(RunStatusPending), To: "APPROVED", EngineOnly: true},
	{Type: RunStarted, Level: RunLevel, From: texts(RunStatusPending, RunStatusApproved), To: "RUNNING"},
	{Type: RunPaused, Level: RunLevel, From: texts(RunStatusRunning), To: "PAUSED", Tone: "wait"},
	{Type: RunResumed, Level: RunLevel, From: texts(RunStatusPaused), To: "RUNNING"},
	{Type: RunCompleted, Level: RunLevel, From: texts(RunStatusRunning), To: "COMPLETED"},
	{Type: RunFailed, Level: RunLevel, From: texts(RunStatusRunning), To: "FAILED", Tone: "bad"},
	{Type: RunCancelled, Level: RunLevel, From: texts(RunStatusRunning, RunStatusPaused), To: "CANCELLED", Tone: "bad"},
	{Type: StepStarted, Level: StepLevel, From: texts(StepStatusPending), To: "RUNNING"},
	{Type: StepCompleted, Level: StepLevel, From: texts(StepStatusRunning), To: "SUCCESS"},
	{Type: StepFailed, Level: StepLevel, From: texts(StepStatusRunning), To: "FAILED", Tone: "bad"},
	{Type: StepSkipped, Level: StepLevel, From: texts(StepStatusPending), To: "SKIPPED"},
	{Type: SignalAccepted, Level: SignalLevel, From: texts(RunStatusRunning, RunStatusPaused), Stays: true,
		EngineOnly: true},
	{Type: SignalRejected, Level: SignalLevel, From: texts(RunStatusRunning, RunStatusPaused), Stays: true,
		EngineOnly: true, Tone: "bad"},
}

func texts[S ~string](statuses ...S) []string {
	texts := make([]string, len(statuses))
	for i, status := range statuses {
		texts[i] = string(status)
	}
	return texts
}

// specs finds a declaration by its type.
var specs = func() map[EventType]EventSpec {
	byType := make(map[EventType]EventSpec, len(eventSpecs))
	for _, spec := range eventSpecs {
		byType[spec.Type] = spec
	}
	return byType
}()

// EventTypes returns the known types of a level; all known types if the level is 0.
func EventTypes(level Level) []EventType {
	var types []EventType
	for i := range eventSpecs {
		if level == 0 || eventSpecs[i].Level == level {
			types = append(types, eventSpecs[i].Type)
		}
	}
	return types
}

// Spec returns the declaration of a type; the zero EventSpec if the type is unknown.
func (t EventType) Spec() EventSpec { return specs[t] }

// IsStepLevel reports whether t is a known step-level event, which has a stepId. Every other known event
// is about the run, and has no stepId.
func (t EventType) IsStepLevel() bool { return specs[t].Level == StepLevel }

// EndsRun reports whether t is a run-level event that ends its run. No event is accepted after
// the engine has ended a run.
func (t EventType) EndsRun() bool {
	spec := specs[t]
	return spec.Level == RunLevel && RunStatus(spec.To).Terminal()
}

// known reports whether consumers apply events of type t. Events of every other type change no
// status.
func (t EventType) known() bool { return specs[t].Level == RunLevel || specs[t].Level == StepLevel }

// next returns the status after an event of the level, and whether the event is valid in the status
// now. If the event is invalid, the returned status is the one that it attempts.
func next[S ~string](now S, event EventType, level Level) (S, bool) {
	spec := specs[event]
	if spec.Level != level {
		return now, false
	}
	valid := slices.Contains(spec.From, string(now))
	if valid && spec.Stays {
		return now, true
	}
	return S(spec.To), valid
}
