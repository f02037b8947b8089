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
	// NewID returns a new UUID v4, as IsID wants it; nothing is emitted with another id.
	NewID func() string
}

// DrawnID is the eventId that was drawn for an event before it is emitted. A list of them that is
// stored is the durable EventIdRegistry of a run that goes on later (section 2.5.1).
type DrawnID struct {
	IdempotencyKey string `json:"idempotencyKey"`
	EventID        string `json:"eventId"`
}

// DrawIDs returns ids for events of a run: those that drawn has for them, and new ones for the
// others. Of each event only the members of its idempotency key count. The error is ErrBadID.
func DrawIDs(
	run Identity, newID func() string, drawn []DrawnID, events ...Event,
) ([]DrawnID, error) {
	ids := make([]DrawnID, len(events))
	of := Run{Identity: run}
	for i := range events {
		ids[i].IdempotencyKey = IdempotencyKey(of.keyFields(&events[i]))
		if ids[i].EventID = drawnID(drawn, ids[i].IdempotencyKey); ids[i].EventID != "" {
			continue
		}
		if ids[i].EventID = newID(); !IsID(ids[i].EventID) {
			return nil, fmt.Errorf("%w: %q, for %s", ErrBadID, ids[i].EventID, events[i].EventType)
		}
	}
	return ids, nil
}

// Drawn returns the ids of the events of a run.
func (run *Run) Drawn() []DrawnID {
	ids := make([]DrawnID, len(run.Events))
	for i := range run.Events {
		e := &run.Events[i]
		ids[i] = DrawnID{IdempotencyKey(run.keyFields(e)), e.EventID}
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

// InvalidTransitionError says that a producer was asked for an event that its run or step cannot
// make from where it is. Nothing was emitted; the caller must stop emitting for that entity and
// surface the error (section 5.3, layer 1).
type InvalidTransitionError struct {
	StepID    string // "" for the run
	Expected  string // the states in which the event is valid, joined by " or "; "" for none
	Actual    string
	Attempted EventType
}

func (e *InvalidTransitionError) Error() string {
	entity := "the run"
	if e.StepID != "" {
		entity = "step " + e.StepID
	}
	text := fmt.Sprintf("runevents: %s is %s, so %s is not a valid transition", entity,
		e.Actual, e.Attempted)
	if e.Expected != "" {
		text += ": it has to be " + e.Expected
	}
	return text
}

// Producer emits the events of one run, in order, and never an invalid transition. The ids that it
// draws are stable: after Restart the same event has the same eventId (section 2.5.1). One
// goroutine uses it at a time.
type Producer struct {
	source Source
	run    Run
	now    progress
	// persisted is where the run was when what it had emitted was persisted last, and before has
	// the events until then.
	persisted progress
	before    []registryKey
	// registry has the ids of events that Restart forgot; with those of run it is the
	// EventIdRegistry. All these are searched: a run has few events.
	registry []registered
	// drawn has the ids of events that another producer drew for this one.
	drawn []DrawnID
	// stamped is the last emittedAt, and stampedAt its Unix time in milliseconds.
	stamped   string
	stampedAt int64
}

// progress is where a run is: its status, and that of its step attempts.
type progress struct {
	status RunStatus
	steps  []stepProgress
}

type stepProgress struct {
	stepAttempt
	status StepStatus
}

// step returns where a step attempt is; ok is false before its first event.
func (p *progress) step(step stepAttempt) (status *StepStatus, ok bool) {
	for i := range p.steps {
		if p.steps[i].stepAttempt == step {
			return &p.steps[i].status, true
		}
	}
	return nil, false
}

// clone returns a copy with room for the steps of a run without retries.
func (p *progress) clone() progress {
	return progress{
		p.status,
		append(make([]stepProgress, 0, len(p.steps)+usualSteps), p.steps...),
	}
}

// How many events and steps a run mostly has.
const (
	usualEvents = 12
	usualSteps  = 4
)

type registered struct {
	key registryKey
	id  string
}

// registryKey names what the idempotency key hashes that can differ within one run: two events have
// the same registryKey if and only if they have the same idempotency key.
type registryKey struct {
	eventType EventType
	stepAttempt
}

func keyOf(e *Event) registryKey {
	return registryKey{e.EventType, stepAttempt{e.StepID, e.LogicalAttemptID}}
}

// firstAttempt is where logical attempts start (section 2.4).
const firstAttempt = 1

// NewProducer starts the events of a run that has none yet.
func NewProducer(identity Identity, source Source) *Producer {
	p := &Producer{source: source, persisted: progress{status: RunPending}}
	p.run.Identity, p.run.FirstSeq = identity, 1
	p.Restart()
	return p
}

// Restart forgets what was emitted since the start or the last Persisted, because none of it was
// persisted, and keeps the event ids.
func (p *Producer) Restart() {
	for i := range p.run.Events {
		e := &p.run.Events[i]
		if key := keyOf(e); p.registered(key) == "" {
			p.registry = append(p.registry, registered{key, e.EventID})
		}
	}
	p.begin()
}

// begin begins behind what is persisted. It gives up the memory of the events before, which the
// caller of Run may still read.
func (p *Producer) begin() {
	p.run.Events = make([]Event, 0, usualEvents)
	p.now = p.persisted.clone()
}

// Persisted says that all that was emitted so far is persisted. What follows is a batch of its own,
// whose first event has the runSeq next.
func (p *Producer) Persisted(next int64) {
	for i := range p.run.Events {
		p.before = append(p.before, keyOf(&p.run.Events[i]))
	}
	p.persisted = p.now
	p.run.FirstSeq = next
	p.begin()
}

// UseIDs gives the events to come that drawn has an id for that id. The caller must not change
// drawn.
func (p *Producer) UseIDs(drawn []DrawnID) { p.drawn = drawn }

// HappenedAt says when what the last emitted event tells of happened, where that was before it was
// emitted: its emittedAt is that time. A zero time changes nothing.
func (p *Producer) HappenedAt(at time.Time) {
	if n := len(p.run.Events); n > 0 && !at.IsZero() {
		p.run.Events[n-1].EmittedAt = Timestamp(at)
	}
}

// Run returns what was emitted since the start or the last Persisted or Restart. It shares memory
// with the producer, which finds in it what was emitted: the caller must not change it.
func (p *Producer) Run() *Run { return &p.run }

// ResumeAt says that events which another producer emitted have brought the run to status, and
// started the step attempts that are still to end.
func (p *Producer) ResumeAt(status RunStatus, started ...Event) {
	p.persisted.status = status
	for i := range started {
		p.persisted.steps = append(p.persisted.steps,
			stepProgress{keyOf(&started[i]).stepAttempt, StepRunning})
	}
	p.now = p.persisted.clone()
}

// Status returns where the events that were emitted so far have brought the run.
func (p *Producer) Status() RunStatus { return p.now.status }

// OfRun emits a run-level event, or the decision about a signal. payload is nil or marshals to a
// JSON object.
func (p *Producer) OfRun(event EventType, payload any) error {
	return p.OfRunAgain(event, firstAttempt, payload)
}

// OfRunAgain emits a run-level event for the nth time, from 1: a run may be paused and resumed more
// than once, and the number tells the idempotency keys of these events apart.
func (p *Producer) OfRunAgain(event EventType, n int64, payload any) error {
	return p.ofRun(event, n, 0, payload)
}

// OfRunBefore emits a run-level event that happened some time ago.
func (p *Producer) OfRunBefore(event EventType, ago time.Duration, payload any) error {
	return p.ofRun(event, firstAttempt, ago, payload)
}

func (p *Producer) ofRun(event EventType, n int64, ago time.Duration, payload any) error {
	next, ok := nextEmitted(p.now.status, event)
	if !ok {
		return &InvalidTransitionError{
			Expected: validIn(event, ""), Actual: string(p.now.status), Attempted: event,
		}
	}
	if err := p.emit(event, stepAttempt{attempt: n}, ago, payload); err != nil {
		return err
	}
	p.now.status = next
	return nil
}

// OfStep emits a step-level event of the step's first attempt. payload is as for OfRun.
func (p *Producer) OfStep(event EventType, stepID string, payload any) error {
	return p.OfAttempt(event, stepID, firstAttempt, payload)
}

// OfAttempt emits a step-level event of a logical attempt, from 1. payload is as for OfRun. While
// the run is paused a step that is in flight may end.
func (p *Producer) OfAttempt(event EventType, stepID string, attempt int64, payload any) error {
	step := stepAttempt{stepID, attempt}
	now := StepPending
	known, ok := p.now.step(step)
	if ok {
		now = *known
	}
	drains := p.now.status == RunIsPaused && (event == StepCompleted || event == StepFailed)
	if p.now.status != RunRunning && !drains {
		return &InvalidTransitionError{
			Expected: string(RunRunning), Actual: string(p.now.status), Attempted: event,
		}
	}
	next, valid := NextStepStatus(now, event)
	if !valid {
		return &InvalidTransitionError{
			StepID: stepID, Expected: validIn(event, stepID), Actual: string(now), Attempted: event,
		}
	}
	if err := p.emit(event, step, 0, payload); err != nil {
		return err
	}
	if ok {
		*known = next
	} else {
		p.now.steps = append(p.now.steps, stepProgress{step, next})
	}
	return nil
}

func (p *Producer) emit(event EventType, step stepAttempt, ago time.Duration, payload any) error {
	e := Event{
		EventType: event, StepID: step.stepID, LogicalAttemptID: step.attempt,
		EmittedAt: p.timestamp(p.source.Now().Add(-ago)),
	}
	if err := p.run.keyFields(&e).Validate(); err != nil {
		return err
	}
	if p.emitted(keyOf(&e)) {
		return fmt.Errorf("runevents: %s was emitted before, and a second one would have its key",
			event)
	}
	if payload != nil {
		data, err := json.Marshal(payload, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("runevents: the payload of %s is not JSON: %w", event, err)
		}
		if len(data) == 0 || data[0] != '{' {
			return fmt.Errorf("runevents: the payload of %s is not a JSON object: %s", event, data)
		}
		e.Payload = data
	}
	var err error
	if e.EventID, err = p.id(&e); err != nil {
		return err
	}
	p.run.Events = append(p.run.Events, e)
	return nil
}

// timestamp is Timestamp, written once for all events of a millisecond.
func (p *Producer) timestamp(at time.Time) string {
	if ms := at.UnixMilli(); p.stamped == "" || p.stampedAt != ms {
		p.stamped, p.stampedAt = Timestamp(at), ms
	}
	return p.stamped
}

// emitted reports whether the event with a key was emitted, and not forgotten by Restart.
func (p *Producer) emitted(key registryKey) bool {
	for i := range p.run.Events {
		if keyOf(&p.run.Events[i]) == key {
			return true
		}
	}
	return slices.Contains(p.before, key)
}

// id returns the stable id of an event that is not emitted yet.
func (p *Producer) id(e *Event) (string, error) {
	id := p.registered(keyOf(e))
	if id == "" {
		id = p.draw(e)
	}
	if !IsID(id) {
		return "", fmt.Errorf("%w: %q, for %s", ErrBadID, id, e.EventType)
	}
	return id, nil
}

// registered returns the id that an event had before Restart forgot it, or "".
func (p *Producer) registered(key registryKey) string {
	for i := range p.registry {
		if p.registry[i].key == key {
			return p.registry[i].id
		}
	}
	return ""
}

// draw returns the id that was drawn for an event before, or a new one.
func (p *Producer) draw(e *Event) string {
	if len(p.drawn) > 0 {
		if id := drawnID(p.drawn, IdempotencyKey(p.run.keyFields(e))); id != "" {
			return id
		}
	}
	return p.source.NewID()
}
