package runevents

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Source provides a producer's clock and event ids, which are not deterministic.
type Source struct {
	// Now is the producer's clock.
	Now func() time.Time
	// NewID returns a new UUID v4 (see IsID); no event is emitted with another id.
	NewID func() string
}

// DrawnID is an eventId that was drawn before its event is emitted. A stored list of them is the
// durable EventIdRegistry of a run that goes on later (section 2.5.1).
type DrawnID struct {
	IdempotencyKey string `json:"idempotencyKey"`
	EventID        string `json:"eventId"`
}

// DrawIDs returns ids for events of a run: those in drawn, and new ones for the rest. Only the
// members of an event's idempotency key count. The error is ErrBadID.
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

// InvalidTransitionError refuses an event that the run or step cannot make from its state. Nothing
// was emitted; the caller must stop emitting for that entity and surface the error (section 5.3,
// layer 1).
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

// Producer emits the events of one run in order, and never an invalid transition. Its ids are
// stable: after Restart the same event has the same eventId (section 2.5.1). One goroutine uses it
// at a time.
type Producer struct {
	source Source
	run    Run
	now    progress
	// persisted is the run's state at the last Persisted; before has the events until then.
	persisted progress
	before    []registryKey
	// registry has the ids of events that Restart forgot; with the ids in run it is the
	// EventIdRegistry. It is searched linearly: a run has few events.
	registry []registered
	// drawn has the ids that another producer drew for this one's events.
	drawn []DrawnID
	// stamped is the last emittedAt; stampedAt is its Unix time in milliseconds.
	stamped   string
	stampedAt int64
}

// progress is the status of a run and of its step attempts.
type progress struct {
	status RunStatus
	steps  []stepProgress
}

type stepProgress struct {
	stepAttempt
	status StepStatus
}

// step returns a step attempt's status; ok is false before its first event.
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

// The usual numbers of events and steps of a run.
const (
	usualEvents = 12
	usualSteps  = 4
)

type registered struct {
	key registryKey
	id  string
}

// registryKey has the fields of the idempotency key that differ within one run. Two events have the
// same registryKey if and only if they have the same idempotency key.
type registryKey struct {
	eventType EventType
	stepAttempt
}

func keyOf(e *Event) registryKey {
	return registryKey{e.EventType, stepAttempt{e.StepID, e.LogicalAttemptID}}
}

// firstAttempt is the number of the first logical attempt (section 2.4).
const firstAttempt = 1

// NewProducer starts the events of a run that has none yet.
func NewProducer(identity Identity, source Source) *Producer {
	p := &Producer{source: source, persisted: progress{status: RunPending}}
	p.run.Identity, p.run.FirstSeq = identity, 1
	p.Restart()
	return p
}

// Restart discards the events since the start or the last Persisted, because they were not
// persisted, and keeps their ids.
func (p *Producer) Restart() {
	for i := range p.run.Events {
		e := &p.run.Events[i]
		if key := keyOf(e); p.registered(key) == "" {
			p.registry = append(p.registry, registered{key, e.EventID})
		}
	}
	p.begin()
}

// begin starts a batch behind the persisted events. It allocates anew, since the caller of Run may
// still read the events before.
func (p *Producer) begin() {
	p.run.Events = make([]Event, 0, usualEvents)
	p.now = p.persisted.clone()
}

// Persisted marks all emitted events as persisted. The next event starts a new batch with the
// runSeq next.
func (p *Producer) Persisted(next int64) {
	for i := range p.run.Events {
		p.before = append(p.before, keyOf(&p.run.Events[i]))
	}
	p.persisted = p.now
	p.run.FirstSeq = next
	p.begin()
}

// UseIDs sets the ids of later events that drawn has an id for. The caller must not change drawn.
func (p *Producer) UseIDs(drawn []DrawnID) { p.drawn = drawn }

// HappenedAt sets the emittedAt of the last emitted event to the time at which it happened. A zero
// time changes nothing.
func (p *Producer) HappenedAt(at time.Time) {
	if n := len(p.run.Events); n > 0 && !at.IsZero() {
		p.run.Events[n-1].EmittedAt = Timestamp(at)
	}
}

// Run returns the events since the start or the last Persisted or Restart. It shares memory with
// the producer: the caller must not change it.
func (p *Producer) Run() *Run { return &p.run }

// ResumeAt continues a run of another producer, whose events led to status and started the step
// attempts that are still to end.
func (p *Producer) ResumeAt(status RunStatus, started ...Event) {
	p.persisted.status = status
	for i := range started {
		p.persisted.steps = append(p.persisted.steps,
			stepProgress{keyOf(&started[i]).stepAttempt, StepRunning})
	}
	p.now = p.persisted.clone()
}

// Status returns the run's status after the emitted events.
func (p *Producer) Status() RunStatus { return p.now.status }

// OfRun emits a run-level event, or the decision about a signal. payload is nil or marshals to a
// JSON object.
func (p *Producer) OfRun(event EventType, payload any) error {
	return p.OfRunAgain(event, firstAttempt, payload)
}

// OfRunAgain emits a run-level event for the nth time, from 1. A run may be paused and resumed more
// than once; n tells the idempotency keys of these events apart.
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
// the run is paused, a step that is in flight may end.
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

// timestamp is Timestamp, formatted once for all events of a millisecond.
func (p *Producer) timestamp(at time.Time) string {
	if ms := at.UnixMilli(); p.stamped == "" || p.stampedAt != ms {
		p.stamped, p.stampedAt = Timestamp(at), ms
	}
	return p.stamped
}

// emitted reports whether the event with key was emitted and not discarded by Restart.
func (p *Producer) emitted(key registryKey) bool {
	for i := range p.run.Events {
		if keyOf(&p.run.Events[i]) == key {
			return true
		}
	}
	return slices.Contains(p.before, key)
}

// id returns the stable id of an event to emit.
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

// registered returns the id that an event had before Restart discarded it, or "".
func (p *Producer) registered(key registryKey) string {
	for i := range p.registry {
		if p.registry[i].key == key {
			return p.registry[i].id
		}
	}
	return ""
}

// draw returns the id that was drawn for an event earlier, or a new one.
func (p *Producer) draw(e *Event) string {
	if len(p.drawn) > 0 {
		if id := drawnID(p.drawn, IdempotencyKey(p.run.keyFields(e))); id != "" {
			return id
		}
	}
	return p.source.NewID()
}
