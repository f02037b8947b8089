package runevents

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Source is where a producer takes what is not deterministic from: its clock and its event ids.
type Source struct {
	// Now is the producer's clock.
	Now func() time.Time
	// NewID returns a new UUID v4.
	NewID func() string
}

// InvalidTransitionError says that a producer was asked for an event that its run or step cannot
// make from where it is. Nothing was emitted; the caller must stop emitting for that entity and
// surface the error (section 5.3, layer 1).
type InvalidTransitionError struct {
	StepID    string // "" for the run
	Actual    string
	Attempted EventType
}

func (e *InvalidTransitionError) Error() string {
	entity := "the run"
	if e.StepID != "" {
		entity = "step " + e.StepID
	}
	return fmt.Sprintf("runevents: %s is %s, so %s is not a valid transition",
		entity, e.Actual, e.Attempted)
}

// Producer emits the events of one run, in order, and never an invalid transition. The ids that it
// draws are stable: after Restart the same event has the same eventId (section 2.5.1). One
// goroutine uses it at a time.
type Producer struct {
	source Source
	run    Run
	status RunStatus
	steps  map[string]StepStatus
	// registry is the EventIdRegistry of this run. The key names what the idempotency key hashes
	// that can differ within one run: two events have the same entry if and only if they have
	// the same idempotency key.
	registry map[registryKey]string
}

type registryKey struct {
	eventType EventType
	stepID    string
	attempt   int64
}

// firstAttempt is where logical attempts start (section 2.4).
const firstAttempt = 1

// NewProducer starts the events of a run that has none yet.
func NewProducer(identity Identity, source Source) *Producer {
	p := &Producer{source: source, registry: make(map[registryKey]string, 12)}
	p.run.Identity = identity
	p.Restart()
	return p
}

// Restart forgets what was emitted, because none of it was persisted, and keeps the event ids.
func (p *Producer) Restart() {
	p.run.FirstSeq = 1
	p.run.Events = make([]Event, 0, 12)
	p.status = RunPending
	p.steps = make(map[string]StepStatus, 4)
}

// Run returns what was emitted so far. It shares memory with the producer.
func (p *Producer) Run() *Run { return &p.run }

// OfRun emits a run-level event. payload is nil or marshals to a JSON object.
func (p *Producer) OfRun(event EventType, payload any) error {
	next, ok := NextRunStatus(p.status, event)
	if !ok {
		return &InvalidTransitionError{Actual: string(p.status), Attempted: event}
	}
	if err := p.emit(event, "", payload); err != nil {
		return err
	}
	p.status = next
	return nil
}

// OfStep emits a step-level event of the step's first attempt. payload is as for OfRun.
func (p *Producer) OfStep(event EventType, stepID string, payload any) error {
	now, ok := p.steps[stepID]
	if !ok {
		now = StepPending
	}
	if p.status != RunRunning {
		return &InvalidTransitionError{Actual: string(p.status), Attempted: event}
	}
	next, ok := NextStepStatus(now, event)
	if !ok {
		return &InvalidTransitionError{StepID: stepID, Actual: string(now), Attempted: event}
	}
	if err := p.emit(event, stepID, payload); err != nil {
		return err
	}
	p.steps[stepID] = next
	return nil
}

func (p *Producer) emit(event EventType, stepID string, payload any) error {
	e := Event{
		EventType: event, StepID: stepID, LogicalAttemptID: firstAttempt,
		EmittedAt: Timestamp(p.source.Now()),
	}
	if err := p.run.keyFields(&e).Validate(); err != nil {
		return err
	}
	if p.emitted(&e) {
		return fmt.Errorf("runevents: %s was emitted before, and a second one would have its key", event)
	}
	if payload != nil {
		data, err := json.Marshal(payload, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("runevents: the payload of %s is not JSON: %w", event, err)
		}
		if data[0] != '{' {
			return fmt.Errorf("runevents: the payload of %s is not a JSON object: %s", event, data)
		}
		e.Payload = data
	}
	key := registryKey{event, stepID, firstAttempt}
	id, ok := p.registry[key]
	if !ok {
		id = p.source.NewID()
		p.registry[key] = id
	}
	e.EventID = id
	p.run.Events = append(p.run.Events, e)
	return nil
}

// emitted says whether the run has the event already.
func (p *Producer) emitted(e *Event) bool {
	return slices.ContainsFunc(p.run.Events, func(other Event) bool {
		return other.EventType == e.EventType && other.StepID == e.StepID &&
			other.LogicalAttemptID == e.LogicalAttemptID
	})
}
