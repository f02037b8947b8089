package runevents

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// EventType is the kind of an event. The set is open: consumers tolerate types they do not know.
type EventType string

// The lifecycle events (RunEvents v2.0.1, section 1.2), and three of ExecutionSemantics v1 (section
// 1.2): RunApproved, and the decisions about signals. The catalog of v2 omits these three, so
// consumers of v2 treat them as unknown types.
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
// cmd/internal/gen writes the lists of the schemas, of the JavaScript client and of the console.
// The payload's schema has the name of the type.
type EventSpec struct {
	Type  EventType
	Level Level
	// From are the statuses in which the event is valid, of the run or of the step attempt, and To
	// the status that follows. Stays keeps the status instead.
	From  []string
	To    string
	Stays bool
	// OfEngine events are the engine's alone to emit.
	OfEngine bool
	// Tone is how readers show it: "bad", "wait" or "".
	Tone string
}

// Level is the subject of an event.
type Level int

// The levels. A consumer changes nothing for an event about a signal.
const (
	OfRun Level = iota + 1
	OfStep
	OfSignal
)

// RunEvents v2.0.1 has the targets (sections 5.1 and 5.2), ExecutionSemantics v1 the sources
// (section 1.2). Two sources go beyond it, because v2 has no RunApproved: a run starts from PENDING
// too, and RunQueued is valid until then.
var eventSpecs = []EventSpec{
	{Type: RunQueued, Level: OfRun, From: texts(RunPending, RunIsApproved), To: "PENDING", Stays: true,
		OfEngine: true},
	{Type: RunApproved, Level: OfRun, From: texts(RunPending), To: "APPROVED", OfEngine: true},
	{Type: RunStarted, Level: OfRun, From: texts(RunPending, RunIsApproved), To: "RUNNING"},
	{Type: RunPaused, Level: OfRun, From: texts(RunRunning), To: "PAUSED", Tone: "wait"},
	{Type: RunResumed, Level: OfRun, From: texts(RunIsPaused), To: "RUNNING"},
	{Type: RunCompleted, Level: OfRun, From: texts(RunRunning), To: "COMPLETED"},
	{Type: RunFailed, Level: OfRun, From: texts(RunRunning), To: "FAILED", Tone: "bad"},
	{Type: RunCancelled, Level: OfRun, From: texts(RunRunning, RunIsPaused), To: "CANCELLED", Tone: "bad"},
	{Type: StepStarted, Level: OfStep, From: texts(StepPending), To: "RUNNING"},
	{Type: StepCompleted, Level: OfStep, From: texts(StepRunning), To: "SUCCESS"},
	{Type: StepFailed, Level: OfStep, From: texts(StepRunning), To: "FAILED", Tone: "bad"},
	{Type: StepSkipped, Level: OfStep, From: texts(StepPending), To: "SKIPPED"},
	{Type: SignalAccepted, Level: OfSignal, From: texts(RunRunning, RunIsPaused), Stays: true,
		OfEngine: true},
	{Type: SignalRejected, Level: OfSignal, From: texts(RunRunning, RunIsPaused), Stays: true,
		OfEngine: true, Tone: "bad"},
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

// EventTypes returns the known types of a level; all for 0.
func EventTypes(level Level) []EventType {
	var types []EventType
	for i := range eventSpecs {
		if level == 0 || eventSpecs[i].Level == level {
			types = append(types, eventSpecs[i].Type)
		}
	}
	return types
}

// Spec returns the declaration of a type; the zero EventSpec if it is unknown.
func (t EventType) Spec() EventSpec { return specs[t] }

// folded finds a known type by its folded name.
var folded = func() map[string]EventType {
	types := make(map[string]EventType, len(eventSpecs))
	for _, spec := range eventSpecs {
		types[fold(string(spec.Type))] = spec.Type
	}
	return types
}()

// fold returns the letters and digits of a name, in lower case.
func fold(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name))
}

// problem returns why producers may not emit an unknown type: readers would mistake it for a known
// one; "" if they may. The set of types is open (RunEvents v2.0.1, section 1.3).
func (t EventType) problem() string {
	if _, known := specs[t]; known {
		return ""
	}
	if like, ok := folded[fold(string(t))]; ok {
		return fmt.Sprintf("must not read like %s, which is another type", like)
	}
	return ""
}

// OfStep reports whether t is a known step-level event, which carries a stepId. Every other known
// event is of the run and carries none.
func (t EventType) OfStep() bool { return specs[t].Level == OfStep }

// EndsRun reports whether t is a run-level event that ends its run. A run that the engine ended
// takes no more events.
func (t EventType) EndsRun() bool {
	spec := specs[t]
	return spec.Level == OfRun && RunStatus(spec.To).Terminal()
}

// ofSignal reports whether t is a decision about a signal.
func (t EventType) ofSignal() bool { return specs[t].Level == OfSignal }

// known reports whether consumers apply t; they tolerate every other type and change nothing for
// it.
func (t EventType) known() bool { return specs[t].Level == OfRun || specs[t].Level == OfStep }

// next returns the status after an event of the level, and whether the event is valid from now. If
// it is invalid, the status is the attempted one.
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
