package runevents

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Project derives the snapshot of a run from its events (ExecutionSemantics v1, section 1.5). It is
// Incremental from NewSnapshot.
func Project(runID string, events []Record) (Snapshot, []Alert, error) {
	return Incremental(NewSnapshot(runID), events)
}

// Incremental derives the snapshot that follows s after events, and the alerts about these events.
// It is pure and deterministic, and changes neither s nor events. If a has the events of a run up
// to a runSeq, and b the later ones, Incremental(Project(a), b) is Project(a+b). The error is
// ErrOtherRun or ErrNoRunSeq; Incremental then returns s.
//
// Incremental applies events in the order of runSeq, whatever their order in the slice; gaps are natural.
// The first rule that fits an event applies:
//
//   - If the runSeq of the event is not above the watermark, the event was applied before. It
//     changes nothing.
//   - An event of an unknown type only advances the watermark (RunEvents v2.0.1, section 1.3).
//   - If an earlier event, valid or not, had the same idempotency key, the event only advances the
//     watermark (ExecutionSemantics v2, section 4).
//   - An invalid event advances the watermark and is otherwise ignored. It marks the run
//     INCONSISTENT and gives one INVALID_TRANSITION for its eventId (policy A of section 5.3).
//   - Any other event moves its run or its step attempt.
//
// An event is valid if NextRunStatus or NextStepStatus allows its transition. An event of a step
// must also have a stepId, and its run must not have ended; an event of the run must have no
// stepId. While a run is PAUSED, the steps in flight go on (v1, section 6, option A).
//
// Two kinds of events are effects before their causes, and give a PROJECTOR_CAUSAL_VIOLATION (v1,
// section 1.0.1). A step event before RunStarted is applied. A StepCompleted or StepFailed before
// its StepStarted is invalid.
func Incremental(s Snapshot, events []Record) (Snapshot, []Alert, error) {
	events, err := Ordered(s.RunID, events)
	if err != nil {
		return s, nil, err
	}
	r := reduction{Snapshot: s.clone(len(events))}
	for i := range events {
		r.apply(&events[i])
	}
	return r.Snapshot, r.alerts, nil
}

// DetectNonContiguous reports whether nextSeq skips a runSeq after lastSeq. Gaps are natural: a gap
// never means that an event is lost, but it is a reason to read the run again (v1, sections 1.0 and
// 1.5).
func DetectNonContiguous(lastSeq, nextSeq int64) bool { return nextSeq > lastSeq+1 }

// ResyncMode is how a run is read again.
type ResyncMode string

// The modes of ExecutionSemantics v1, section 1.5.1.
const (
	// ResyncFull reads all events of the run from the beginning.
	ResyncFull ResyncMode = "FULL"
	// ResyncFromSnapshot reads a snapshot and the events after it.
	ResyncFromSnapshot ResyncMode = "FROM_SNAPSHOT"
)

// Ordered returns records of a run in the order of runSeq. If they are in order already, it returns the same
// slice. No two events share a runSeq; if they did, the lower eventId would go first, so that the
// order of arrival never counts. The error is ErrOtherRun or ErrNoRunSeq.
func Ordered(runID string, events []Record) ([]Record, error) {
	for i := range events {
		if events[i].RunID != runID {
			return nil, fmt.Errorf("%w: %q, not %q", ErrOtherRun, events[i].RunID, runID)
		}
		if events[i].RunSeq < 1 {
			return nil, fmt.Errorf("%w: run %q, event %q", ErrNoRunSeq, runID, events[i].EventID)
		}
	}
	compare := func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.RunSeq, b.RunSeq), strings.Compare(a.EventID, b.EventID))
	}
	if slices.IsSortedFunc(events, compare) {
		return events, nil
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, compare)
	return events, nil
}

// reduction is a projection under way. It owns the slices of its snapshot.
type reduction struct {
	Snapshot
	alerts []Alert
}

func (r *reduction) apply(e *Record) {
	if e.RunSeq <= r.LastEventSeq {
		return
	}
	r.LastEventSeq = e.RunSeq
	if !e.EventType.known() {
		return
	}
	at, duplicate := slices.BinarySearch(r.SeenKeys, e.IdempotencyKey)
	if duplicate {
		return
	}
	r.SeenKeys = slices.Insert(r.SeenKeys, at, e.IdempotencyKey)
	i, step := r.find(e), StepStatusPending
	if i >= 0 {
		step = r.Steps[i].Status
	}
	v := Judge(r.Status, step, e.EventType, e.StepID)
	alerts := v.Alerts(e)
	if !v.Valid && r.ignore(e.EventID) {
		alerts = alerts[1:]
	}
	r.alerts = append(r.alerts, alerts...)
	switch {
	case !v.Valid:
	case e.EventType.IsStepLevel():
		r.identify(e)
		r.moveStep(i, StepStatus(v.Next), e)
	default:
		r.identify(e)
		r.moveRun(RunStatus(v.Next), e)
	}
}

// ignore marks the run INCONSISTENT, and reports whether an event with the eventId was ignored
// before: it gets no second alert (policy A of RunEvents v2.0.1, section 5.3).
func (r *reduction) ignore(eventID string) (before bool) {
	m := &r.Metadata
	m.Consistency = Inconsistent
	if slices.Contains(m.IgnoredEvents, eventID) {
		return true
	}
	m.IgnoredEvents = append(m.IgnoredEvents, eventID)
	return false
}

// find returns the index of e's step attempt, or -1. It searches from the end, since most events
// are about one of the latest attempts.
func (r *reduction) find(e *Record) int {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].StepID == e.StepID && r.Steps[i].LogicalAttemptID == e.LogicalAttemptID {
			return i
		}
	}
	return -1
}

func (r *reduction) moveRun(next RunStatus, e *Record) {
	r.Status = next
	switch {
	case e.EventType == RunQueued:
		r.Metadata.Started = decoded[jsontext.Value](e.Payload)
	case e.EventType == RunStarted:
		r.start(e)
	case next.Terminal():
		r.end(e)
	}
}

// moveStep moves the ith step attempt, or a new one if i is -1.
func (r *reduction) moveStep(i int, next StepStatus, e *Record) {
	if i < 0 {
		i = len(r.Steps)
		r.Steps = append(r.Steps, StepSnapshot{
			StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID, Artifacts: []Artifact{},
		})
	}
	step := &r.Steps[i]
	step.Status, step.EngineAttemptID = next, e.EngineAttemptID
	d := readDetails(e)
	switch e.EventType {
	case StepStarted:
		step.StartedAt = d.time(e)
	case StepCompleted:
		step.CompletedAt, step.Artifacts = d.time(e), d.artifacts()
	case StepFailed:
		step.CompletedAt, step.Artifacts = d.time(e), d.artifacts()
		step.Error = decoded[*StepError](d.Error)
		r.Metadata.FailedSteps++
	case StepSkipped:
		step.Reason = decoded[string](d.Reason)
	}
}

func (r *reduction) start(e *Record) {
	d := readDetails(e)
	r.EngineRunRef = decoded[string](d.EngineRunRef)
	r.StartedAt = d.time(e)
	if at := decoded[string](d.StartedAt); !parsedTime(at).IsZero() {
		r.StartedAt = schemas.UTC(at)
	}
	r.Metadata.Started = decoded[jsontext.Value](e.Payload)
}

func (r *reduction) end(e *Record) {
	d := readDetails(e)
	r.CompletedAt = d.time(e)
	if from, to := parsedTime(r.StartedAt), parsedTime(r.CompletedAt); !from.IsZero() &&
		!to.IsZero() {
		duration := max(to.Sub(from).Milliseconds(), 0)
		r.TotalDurationMs = &duration
	}
	r.Metadata.Outcome = decoded[jsontext.Value](e.Payload)
	if e.EventType != RunCompleted {
		return
	}
	artifacts := []Artifact{}
	for i := range r.Steps {
		artifacts = append(artifacts, r.Steps[i].Artifacts...)
	}
	r.Artifacts = append(artifacts, d.artifacts()...)
}

// identify copies the ids of the run from its first valid event.
func (r *reduction) identify(e *Record) {
	m := &r.Metadata
	if m.TenantID != "" || m.PlanID != "" {
		return
	}
	m.TenantID, m.ProjectID, m.EnvironmentID = e.TenantID, e.ProjectID, e.EnvironmentID
	m.PlanID, m.PlanVersion, m.AppendedBy = e.PlanID, e.PlanVersion, e.AppendedBy
}
