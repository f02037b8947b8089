package runevents

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// Source is where a producer takes what is not deterministic from: its clock and its event ids.
type Source struct {
	// Now is the producer's clock.
	Now func() time.Time
	// NewID returns a new UUID v4, as IsID wants it; nothing is emitted with another id.
	NewID func() string

	seed string // what ids are derived from once NewID is nil
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
	now    progress
	// persisted is where the run was when what it had emitted was persisted last.
	persisted progress
	// registry is the EventIdRegistry of this run. The key names what the idempotency key hashes
	// that can differ within one run: two events have the same entry if and only if they have
	// the same idempotency key.
	registry map[registryKey]string
}

// progress is where a run is: its status, that of its step attempts, and what it has emitted.
type progress struct {
	status  RunStatus
	steps   map[stepAttempt]StepStatus
	emitted []registryKey
}

func (p *progress) clone() progress {
	return progress{p.status, maps.Clone(p.steps), slices.Clip(p.emitted)}
}

type registryKey struct {
	eventType EventType
	stepAttempt
}

// firstAttempt is where logical attempts start (section 2.4).
const firstAttempt = 1

// NewProducer starts the events of a run that has none yet.
func NewProducer(identity Identity, source Source) *Producer {
	p := &Producer{
		source: source, registry: make(map[registryKey]string, 12),
		persisted: progress{
			status: RunPending, steps: map[stepAttempt]StepStatus{},
		},
	}
	p.run.Identity, p.run.FirstSeq = identity, 1
	p.Restart()
	return p
}

// Restart forgets what was emitted since the start or the last Persisted, because none of it was
// persisted, and keeps the event ids.
func (p *Producer) Restart() {
	p.run.Events = make([]Event, 0, 12)
	p.now = p.persisted.clone()
}

// Persisted says that all that was emitted so far is persisted. What follows is a batch of its own,
// whose first event has the runSeq next.
func (p *Producer) Persisted(next int64) {
	p.persisted = p.now
	p.run.FirstSeq = next
	p.Restart()
}

// DrawIDs makes seed, a string that nobody else can guess, what the eventIds of the events to come are
// derived from. Whoever has the seed gets the same ids for the same events, so a seed that is written
// down is a durable EventIdRegistry of events that are not emitted yet.
func (p *Producer) DrawIDs(seed string) {
	clear(p.registry)
	p.source.NewID = nil
	p.source.seed = seed
}

// Run returns what was emitted so far. It shares memory with the producer.
func (p *Producer) Run() *Run { return &p.run }

// OfRun emits a run-level event. payload is nil or marshals to a JSON object.
func (p *Producer) OfRun(event EventType, payload any) error {
	next, ok := NextRunStatus(p.now.status, event)
	if !ok {
		return &InvalidTransitionError{Actual: string(p.now.status), Attempted: event}
	}
	if err := p.emit(event, stepAttempt{attempt: firstAttempt}, payload); err != nil {
		return err
	}
	p.now.status = next
	return nil
}

// Signal emits a run-level event that moves nothing, such as SignalAccepted.
func (p *Producer) Signal(event EventType, payload any) error {
	return p.emit(event, stepAttempt{attempt: firstAttempt}, payload)
}

// OfStep emits a step-level event of the step's first attempt. payload is as for OfRun.
func (p *Producer) OfStep(event EventType, stepID string, payload any) error {
	return p.OfAttempt(event, stepID, firstAttempt, payload)
}

// OfAttempt emits a step-level event of a logical attempt, from 1. payload is as for OfRun.
func (p *Producer) OfAttempt(event EventType, stepID string, attempt int64, payload any) error {
	step := stepAttempt{stepID, attempt}
	now, ok := p.now.steps[step]
	if !ok {
		now = StepPending
	}
	if p.now.status != RunRunning {
		return &InvalidTransitionError{Actual: string(p.now.status), Attempted: event}
	}
	next, ok := NextStepStatus(now, event)
	if !ok {
		return &InvalidTransitionError{StepID: stepID, Actual: string(now), Attempted: event}
	}
	if err := p.emit(event, step, payload); err != nil {
		return err
	}
	p.now.steps[step] = next
	return nil
}

func (p *Producer) emit(event EventType, step stepAttempt, payload any) error {
	e := Event{
		EventType: event, StepID: step.stepID, LogicalAttemptID: step.attempt,
		EmittedAt: Timestamp(p.source.Now()),
	}
	if err := p.run.keyFields(&e).Validate(); err != nil {
		return err
	}
	key := registryKey{event, step}
	if slices.Contains(p.now.emitted, key) {
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
	var err error
	if e.EventID, err = p.id(key, &e); err != nil {
		return err
	}
	p.now.emitted = append(p.now.emitted, key)
	p.run.Events = append(p.run.Events, e)
	return nil
}

// id returns the stable id of an event.
func (p *Producer) id(key registryKey, e *Event) (string, error) {
	id, ok := p.registry[key]
	if !ok {
		if id = p.draw(e); !IsID(id) {
			return "", fmt.Errorf("%w: %q, for %s", ErrBadID, id, e.EventType)
		}
		p.registry[key] = id
	}
	return id, nil
}

// draw returns a new id for an event, or the one that the seed gives it.
func (p *Producer) draw(e *Event) string {
	if p.source.NewID != nil {
		return p.source.NewID()
	}
	mac := hmac.New(sha256.New, []byte(p.source.seed))
	mac.Write([]byte(IdempotencyKey(p.run.keyFields(e))))
	id := uuid.UUID(mac.Sum(nil)[:16])
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return id.String()
}
