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
// Incremental takes events in the order of runSeq, whatever order they come in; gaps are natural.
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
	if err := checkRun(s.RunID, events); err != nil {
		return s, nil, err
	}
	s, alerts := reduce(s, inOrder(events))
	return s, alerts, nil
}

// DetectNonContiguous reports whether nextSeq skips a runSeq after lastSeq. Gaps are natural: a gap
// never means that an event is lost, but it is a reason to read the run again (v1, sections 1.0 and
// 1.5).
func DetectNonContiguous(lastSeq, nextSeq int64) bool { return nextSeq > lastSeq+1 }

// ResyncMode is how a run is read again.
type ResyncMode string

// The modes of ExecutionSemantics v1, section 1.5.1.
const (
	// Full reads all events of the run from the beginning.
	Full ResyncMode = "FULL"
	// FromSnapshot reads a snapshot and the events after it.
	FromSnapshot ResyncMode = "FROM_SNAPSHOT"
)

// reduce applies events of the run, which must be in the order of runSeq.
func reduce(s Snapshot, events []Record) (Snapshot, []Alert) {
	r := reduction{Snapshot: s.clone(len(events))}
	for i := range events {
		r.apply(&events[i])
	}
	return r.Snapshot, r.alerts
}

func checkRun(runID string, events []Record) error {
	for i := range events {
		if events[i].RunID != runID {
			return fmt.Errorf("%w: %q, not %q", ErrOtherRun, events[i].RunID, runID)
		}
		if events[i].RunSeq < 1 {
			return fmt.Errorf("%w: run %q, event %q", ErrNoRunSeq, runID, events[i].EventID)
		}
	}
	return nil
}

// inOrder returns events in the order of runSeq. If they are in order already, it returns the same
// slice. No two events share a runSeq; if they did, the lower eventId would go first, so that the
// order of arrival never counts.
func inOrder(events []Record) []Record {
	compare := func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.RunSeq, b.RunSeq), strings.Compare(a.EventID, b.EventID))
	}
	if slices.IsSortedFunc(events, compare) {
		return events
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, compare)
	return events
}

// reduction is a projection under way. It owns the slices of its snapshot.
type reduction struct {
	Snapshot
	alerts []Alert
	steps  map[stepAttempt]int // the indexes of Steps; nil for a search
}

func (r *reduction) apply(stored *Record) {
	if stored.RunSeq <= r.LastEventSeq {
		return
	}
	r.LastEventSeq = stored.RunSeq
	if !stored.EventType.known() {
		return
	}
	at, duplicate := slices.BinarySearch(r.SeenKeys, stored.IdempotencyKey)
	if duplicate {
		return
	}
	r.SeenKeys = slices.Insert(r.SeenKeys, at, stored.IdempotencyKey)
	if stored.EventType.OfStep() {
		r.applyToStep(stored)
	} else {
		r.applyToRun(stored)
	}
}

func (r *reduction) applyToRun(e *Record) {
	next, valid := NextRunStatus(r.Status, e.EventType)
	if !valid || e.StepID != "" {
		r.ignore(e, string(r.Status), string(next))
		return
	}
	r.identify(e)
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

func (r *reduction) applyToStep(e *Record) {
	i := r.find(e)
	prior := StepPending
	if i >= 0 {
		prior = r.Steps[i].Status
	}
	next, valid := NextStepStatus(prior, e.EventType)
	switch {
	case r.Status.Terminal() || e.StepID == "":
		r.ignore(e, string(r.Status), string(next))
		return
	case !valid:
		r.ignore(e, string(prior), string(next))
		if prior == StepPending {
			r.alertInversion(e, "its StepStarted")
		}
		return
	case r.Status != RunRunning && r.Status != RunIsPaused:
		r.alertInversion(e, "RunStarted")
	}
	r.identify(e)
	if i < 0 {
		i = len(r.Steps)
		if r.steps != nil {
			r.steps[stepAttempt{e.StepID, e.LogicalAttemptID}] = i
		}
		r.Steps = append(r.Steps, StepSnapshot{
			StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID, Artifacts: []Artifact{},
		})
	}
	r.moveStep(&r.Steps[i], next, e)
}

// find returns the index of e's step attempt, or -1. It searches from the end, since most events
// are about one of the latest attempts.
func (r *reduction) find(e *Record) int {
	if r.steps != nil {
		if i, known := r.steps[stepAttempt{e.StepID, e.LogicalAttemptID}]; known {
			return i
		}
		return -1
	}
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].StepID == e.StepID && r.Steps[i].LogicalAttemptID == e.LogicalAttemptID {
			return i
		}
	}
	return -1
}

func (r *reduction) moveStep(step *StepSnapshot, next StepStatus, e *Record) {
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

// identify takes the ids of the run from its first valid event.
func (r *reduction) identify(e *Record) {
	m := &r.Metadata
	if m.TenantID != "" || m.PlanID != "" {
		return
	}
	m.TenantID, m.ProjectID, m.EnvironmentID = e.TenantID, e.ProjectID, e.EnvironmentID
	m.PlanID, m.PlanVersion, m.AppendedBy = e.PlanID, e.PlanVersion, e.AppendedBy
}

// ignore marks the run INCONSISTENT, and alerts once for each eventId (policy A of RunEvents
// v2.0.1, section 5.3).
func (r *reduction) ignore(e *Record, prior, attempted string) {
	m := &r.Metadata
	m.Consistency = Inconsistent
	if slices.Contains(m.IgnoredEvents, e.EventID) {
		return
	}
	m.IgnoredEvents = append(m.IgnoredEvents, e.EventID)
	why := "is not valid in " + prior
	switch {
	case e.EventType.OfStep() && e.StepID == "":
		why = "needs a stepId"
	case !e.EventType.OfStep() && e.StepID != "":
		why = "must not have a stepId"
	}
	a := NewAlert(InvalidTransition, e, fmt.Sprintf(
		"%s at runSeq %d %s and was ignored", subject(e), e.RunSeq, why))
	a.PriorState, a.AttemptedState = prior, attempted
	r.alerts = append(r.alerts, a)
}

// alertInversion raises the alert that e comes before its cause.
func (r *reduction) alertInversion(e *Record, cause string) {
	r.alerts = append(r.alerts, NewAlert(CausalViolation, e, fmt.Sprintf(
		"%s at runSeq %d comes before %s", subject(e), e.RunSeq, cause)))
}

func subject(e *Record) string {
	if e.StepID == "" {
		return string(e.EventType)
	}
	return fmt.Sprintf("%s of step %s, attempt %d,", e.EventType, e.StepID, e.LogicalAttemptID)
}
