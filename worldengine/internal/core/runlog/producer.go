package runlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
)

// ErrBadID is returned if a Source made an id that is no UUID v4. Nothing was emitted; the
// Source has to be fixed.
var ErrBadID = errors.New("runlog: an id that was drawn is not a UUID v4")

// Source is a producer's source of times and event ids, which are not deterministic.
type Source struct {
	// Now is the producer's clock.
	Now func() time.Time
	// NewID returns a new UUID v4 (see runevents.IsID); no event is emitted with an id of another form.
	NewID func() string
}

// DrawnID is an eventId that was drawn before its event is emitted. If a run goes on later, a
// stored list of its DrawnIDs is the durable EventIdRegistry of section 2.5.1.
type DrawnID struct {
	IdempotencyKey string `json:"idempotencyKey"`
	EventID        string `json:"eventId"`
}

// DrawIDs returns an id for each event of a run: the id that drawn has for the event, else a new
// one. It reads only those members of an event that make its idempotency key. The error is
// ErrBadID.
func DrawIDs(
	run runevents.Identity, newID func() string, drawn []DrawnID, events ...Event,
) ([]DrawnID, error) {
	ids := make([]DrawnID, len(events))
	for i := range events {
		ids[i].IdempotencyKey = key(&run, &events[i])
		if ids[i].EventID = drawnID(drawn, ids[i].IdempotencyKey); ids[i].EventID != "" {
			continue
		}
		if ids[i].EventID = newID(); !runevents.IsID(ids[i].EventID) {
			return nil, fmt.Errorf("%w: %q, for %s", ErrBadID, ids[i].EventID, events[i].EventType)
		}
	}
	return ids, nil
}

// EventIDs returns the ids of the events of a run, with the idempotency key of each.
func EventIDs(run *Run) []DrawnID {
	ids := make([]DrawnID, len(run.Events))
	for i := range run.Events {
		e := &run.Events[i]
		ids[i] = DrawnID{key(&run.Identity, e), e.EventID}
	}
	return ids
}

// drawnID returns the id of the event with an idempotency key, or "".
func drawnID(drawn []DrawnID, key string) string {
	for i := range drawn {
		if drawn[i].IdempotencyKey == key {
			return drawn[i].EventID
		}
	}
	return ""
}

// Producer emits the events of one run in order, and never an invalid transition. One goroutine uses
// it at a time.
type Producer struct {
	source Source
	run    Run
	status runevents.RunStatus
	steps  []stepState
	drawn  []DrawnID
	// at is the time of the last event, and text its Timestamp: most events of a decision share it.
	at   time.Time
	text string
}

// stepState is the status of a step attempt.
type stepState struct {
	stepAttempt
	status runevents.StepStatus
}

// usualEvents is a number of events that is enough for most runs.
const usualEvents = 12

// NewProducer starts the events of a run that has none yet.
func NewProducer(identity runevents.Identity, source Source) *Producer {
	p := &Producer{source: source, status: runevents.RunStatusPending}
	p.run.Identity = identity
	p.StartBatch(1)
	return p
}

// ResumeAt continues a run that another Producer started. status is the status of the run. started
// has the StepStarted events of the step attempts that have not ended yet.
func (p *Producer) ResumeAt(status runevents.RunStatus, started ...Event) {
	p.status = status
	for i := range started {
		*p.step(stepAttempt{started[i].StepID, started[i].LogicalAttemptID}) = runevents.StepStatusRunning
	}
}

// StartBatch starts a new batch of events after the persisted ones. The first event of the batch
// gets the runSeq next.
func (p *Producer) StartBatch(next int64) {
	p.run.FirstSeq = next
	p.run.Events = make([]Event, 0, usualEvents) // a caller of Run may still read the last batch
}

// UseIDs gives later events their ids from drawn; an event that is not in drawn gets a new id.
// The caller must not change drawn.
func (p *Producer) UseIDs(drawn []DrawnID) { p.drawn = drawn }

// Run returns the events since the last StartBatch. It shares memory with the producer:
// the caller must not change it.
func (p *Producer) Run() *Run { return &p.run }

// Status returns the run's status after the emitted events.
func (p *Producer) Status() runevents.RunStatus { return p.status }

// Now returns the time by the producer's clock.
func (p *Producer) Now() time.Time { return p.source.Now() }

// Emission is an event to emit.
type Emission struct {
	Type   runevents.EventType
	StepID string // "" for an event of the run, or the decision about a signal
	// Attempt is the logical attempt, 1 by default. The nth RunPaused and the nth RunResumed of a
	// run have the attempt n, so that each has an idempotency key of its own.
	Attempt int64
	At      time.Time // when it happened; zero for now
	Payload any       // nil, or marshals to a JSON object
}

// Emit emits an event. After an error, such as *runevents.InvalidTransitionError, nothing was emitted. While
// the run is paused, a step that is in flight may end.
func (p *Producer) Emit(e Emission) error {
	step := stepAttempt{e.StepID, cmp.Or(e.Attempt, firstAttempt)}
	run, status, err := p.next(e.Type, step)
	if err != nil {
		return err
	}
	event, err := p.event(&e, step)
	if err != nil {
		return err
	}
	p.run.Events = append(p.run.Events, event)
	p.status = run
	if e.StepID != "" {
		*p.step(step) = status
	}
	return nil
}

// step returns a pointer to the status of a step attempt. The caller may set the status, but must
// not keep the pointer: the next call of step may move the status.
func (p *Producer) step(attempt stepAttempt) *runevents.StepStatus {
	for i := range p.steps {
		if p.steps[i].stepAttempt == attempt {
			return &p.steps[i].status
		}
	}
	p.steps = append(p.steps, stepState{attempt, runevents.StepStatusPending})
	return &p.steps[len(p.steps)-1].status
}

// next returns the statuses of the run and the step attempt after an event.
func (p *Producer) next(event runevents.EventType, step stepAttempt) (runevents.RunStatus, runevents.StepStatus, error) {
	if step.stepID == "" {
		next, ok := runevents.NextRunStatus(p.status, event)
		if spec := event.Spec(); spec.Level == runevents.SignalLevel {
			next, ok = p.status, slices.Contains(spec.From, string(p.status))
		}
		if !ok {
			return "", "", &runevents.InvalidTransitionError{
				Expected: validIn(event, ""), Actual: string(p.status), Attempted: event,
			}
		}
		return next, "", nil
	}
	drains := p.status == runevents.RunStatusPaused && (event == runevents.StepCompleted || event == runevents.StepFailed)
	if p.status != runevents.RunStatusRunning && !drains {
		return "", "", &runevents.InvalidTransitionError{
			Expected: string(runevents.RunStatusRunning), Actual: string(p.status), Attempted: event,
		}
	}
	now := *p.step(step)
	next, ok := runevents.NextStepStatus(now, event)
	if !ok {
		return "", "", &runevents.InvalidTransitionError{
			StepID: step.stepID, Expected: validIn(event, step.stepID), Actual: string(now),
			Attempted: event,
		}
	}
	return p.status, next, nil
}

// event returns an event with its payload and its id.
func (p *Producer) event(e *Emission, step stepAttempt) (Event, error) {
	at := e.At
	if at.IsZero() {
		at = p.source.Now()
	}
	if p.text == "" || !at.Equal(p.at) {
		p.at, p.text = at, runevents.Timestamp(at)
	}
	event := Event{
		EventType: e.Type, StepID: step.stepID, LogicalAttemptID: step.attempt,
		EmittedAt: p.text,
	}
	fields := keyFields(&p.run.Identity, &event)
	if err := fields.Validate(); err != nil {
		return event, err
	}
	if slices.ContainsFunc(p.run.Events, func(other Event) bool {
		return other.EventType == e.Type && other.StepID == step.stepID &&
			other.LogicalAttemptID == step.attempt
	}) {
		return event, fmt.Errorf(
			"runlog: %s was emitted before, and a second one would have its key", e.Type)
	}
	if e.Payload != nil {
		data, err := json.Marshal(e.Payload, json.Deterministic(true))
		if err != nil {
			return event, fmt.Errorf("runlog: the payload of %s is not JSON: %w", e.Type, err)
		}
		if len(data) == 0 || data[0] != '{' {
			return event, fmt.Errorf("runlog: the payload of %s is not a JSON object: %s", e.Type,
				data)
		}
		event.Payload = data
	}
	if len(p.drawn) > 0 {
		event.EventID = drawnID(p.drawn, runevents.IdempotencyKey(fields))
	}
	if event.EventID == "" {
		event.EventID = p.source.NewID()
	}
	if !runevents.IsID(event.EventID) {
		return event, fmt.Errorf("%w: %q, for %s", ErrBadID, event.EventID, e.Type)
	}
	return event, nil
}

// key returns the idempotency key of an event of a run.
func key(run *runevents.Identity, e *Event) string {
	return runevents.IdempotencyKey(keyFields(run, e))
}

func keyFields(run *runevents.Identity, e *Event) runevents.KeyFields {
	return runevents.KeyFields{
		RunID: run.RunID, StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID, EventType: e.EventType,
		PlanID: run.PlanID, PlanVersion: run.PlanVersion,
	}
}

// stepAttempt is a step attempt or, if stepID is "", the run.
type stepAttempt struct {
	stepID  string
	attempt int64
}

// validIn returns the statuses in which event is valid, joined by " or ". They are statuses of the
// step or, if stepID is "", of the run. If event is of the other level, validIn returns "".
func validIn(event runevents.EventType, stepID string) string {
	spec := event.Spec()
	if (spec.Level == runevents.StepLevel) != (stepID != "") {
		return ""
	}
	return strings.Join(spec.From, " or ")
}

// firstAttempt is the number of the first logical attempt (RunEvents v2.0.1, section 2.4).
const firstAttempt = 1
