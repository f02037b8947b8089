package runevents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
)

// AppendSubject returns the subject of the verb run.append, which is how producers other than the
// engine reach the append authority of a world.
func AppendSubject(world string) string { return "worldengine.v1." + world + ".run.append" }

// EmitterConfig says whose events an Emitter emits and how. Conn, TownID and Identity have to be
// given; the zero value of every other member means its documented default.
type EmitterConfig struct {
	Conn     *nats.Conn
	World    string   // "main"
	TownID   string   // the town that the run is of
	Identity Identity // the run
	// Registry keeps the eventIds; a new MemoryRegistry, which is enough only for a run that ends
	// with this process. Emitters that go on with a run after one another share a durable one.
	Registry EventIDRegistry
	// EngineAttemptID is which attempt of the provider this process is, where it shows attempts; 1.
	EngineAttemptID int64
	// Timeout bounds one attempt to append; 5 s.
	Timeout time.Duration
	// Now is the producer's clock; time.Now.
	Now func() time.Time
}

// Emitter emits run events from a process that is not the engine, such as the worker of a plugin,
// over the verb run.append. It is safe for concurrent use and emits one event at a time.
//
// It never emits an event that is invalid where it believes its run to be (RunEvents v2.0.1, section
// 5.3, layer 1): where its own events, and those it was shown by Observe, have led.
type Emitter struct {
	config EmitterConfig

	turn    chan struct{} // holds a value while an Emit or Observe is at work
	belief  Snapshot
	emitted map[string]Appended // by idempotencyKey
	stopped map[stepAttempt]error
}

// stepAttempt is a step attempt, or with stepID "" the run.
type stepAttempt struct {
	stepID  string
	attempt int64
}

// NewEmitter returns an emitter of a run that it believes to have no events yet.
func NewEmitter(config EmitterConfig) (*Emitter, error) {
	if config.Conn == nil || config.TownID == "" || !runToken.MatchString(config.Identity.RunID) {
		return nil, errors.New("runevents: an emitter needs a connection, a townId and a runId that " +
			"matches " + runToken.String())
	}
	config.World = cmp.Or(config.World, "main")
	config.EngineAttemptID = cmp.Or(config.EngineAttemptID, engineAttempt)
	config.Timeout = cmp.Or(config.Timeout, 5*time.Second)
	if config.Registry == nil {
		config.Registry = NewMemoryRegistry()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Emitter{
		config: config, turn: make(chan struct{}, 1), belief: NewSnapshot(config.Identity.RunID),
		emitted: map[string]Appended{}, stopped: map[stepAttempt]error{},
	}, nil
}

// Observe shows the emitter events that its run has, in the order of runSeq: those of others, or
// its own from before a restart, which Emit then knows. The error is ErrOtherRun, or ErrNoRunSeq.
func (e *Emitter) Observe(records ...Record) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if err := checkRun(e.belief.RunID, records); err != nil {
		return err
	}
	var err error
	for i := range records {
		r := withoutPayload(records[i])
		r.RunSeq = e.belief.LastEventSeq + 1 // the order of belief, which may know of events late
		if e.belief, _, err = Incremental(e.belief, []Record{r}); err != nil {
			return err
		}
		e.emitted[r.IdempotencyKey] = Appended{
			EventID: r.EventID, RunSeq: records[i].RunSeq, PersistedAt: r.PersistedAt,
		}
	}
	return nil
}

// Emit appends one event and returns how it is persisted. stepID is "" for an event of the run,
// attempt is the logicalAttemptId, from 1, and payload is nil or marshals to a JSON object.
//
// It waits and tries again, with the same eventId, while the authority is busy (429), away (503) or
// silent, until ctx is done; then, and after every other error, the same Emit may be called again,
// here or in another process with the same registry, and stores nothing twice. An event that was
// emitted before gets the metadata that it was persisted with, in the Idempotent way.
//
// The error is *InvalidTransitionError when the guard refused the event: nothing was sent, and no
// other event of that step attempt, or run, will be. It is *AppendError when the authority refused,
// *schemas.ValidationError when the event is not as its schema says, ErrRegistry, or ctx's.
func (e *Emitter) Emit(
	ctx context.Context, event EventType, stepID string, attempt int64, payload any,
) (Appended, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return Appended{}, ctx.Err()
	}
	w, err := e.write(event, stepID, attempt, payload)
	if err != nil {
		return Appended{}, err
	}
	if before, ok := e.emitted[w.IdempotencyKey]; ok {
		before.Idempotent = true
		return before, nil
	}
	next, err := e.guard(&w)
	if err != nil {
		return Appended{}, err
	}
	w.EventID, err = e.config.Registry.ID(ctx, w.RunID, w.IdempotencyKey)
	if err != nil {
		return Appended{}, err
	}
	if err := w.Validate(); err != nil {
		return Appended{}, err
	}
	appended, err := e.append(ctx, &w)
	if err != nil {
		return Appended{}, err
	}
	if appended.EventID != w.EventID {
		if err := e.config.Registry.Adopt(ctx, w.RunID, w.IdempotencyKey, appended.EventID); err != nil {
			return Appended{}, err
		}
	}
	e.belief, e.emitted[w.IdempotencyKey] = next, appended
	return appended, nil
}

// write makes the event, without its eventId.
func (e *Emitter) write(event EventType, stepID string, attempt int64, payload any) (Write, error) {
	id := &e.config.Identity
	w := Write{
		EventType: event, StepID: stepID, LogicalAttemptID: attempt,
		EmittedAt: Timestamp(e.config.Now()), EngineAttemptID: e.config.EngineAttemptID,
		RunID: id.RunID, TenantID: id.TenantID, ProjectID: id.ProjectID,
		EnvironmentID: id.EnvironmentID, PlanID: id.PlanID, PlanVersion: id.PlanVersion,
	}
	fields := w.keyFields()
	if err := fields.Validate(); err != nil {
		return w, err
	}
	w.IdempotencyKey = IdempotencyKey(fields)
	if payload == nil {
		return w, nil
	}
	data, err := json.Marshal(payload, json.Deterministic(true))
	if err != nil {
		return w, fmt.Errorf("runevents: the payload of %s is not JSON: %w", event, err)
	}
	w.Payload = data
	return w, nil
}

// guard returns what to believe once w is emitted, or why it must not be.
func (e *Emitter) guard(w *Write) (Snapshot, error) {
	entity := stepAttempt{stepID: w.StepID}
	if w.StepID != "" {
		entity.attempt = w.LogicalAttemptID
	}
	if err := e.stopped[entity]; err != nil {
		return e.belief, err
	}
	next, invalid, err := advance(e.belief, w, e.belief.LastEventSeq+1)
	if err != nil || invalid == nil {
		return next, err
	}
	err = &InvalidTransitionError{StepID: w.StepID, Actual: invalid.PriorState, Attempted: w.EventType}
	e.stopped[entity] = err
	return e.belief, err
}

// append sends w until the authority answers for good.
func (e *Emitter) append(ctx context.Context, w *Write) (Appended, error) {
	body, err := json.Marshal(struct {
		TownID string  `json:"townId"`
		Events []Write `json:"events"`
	}{e.config.TownID, []Write{*w}})
	if err != nil {
		return Appended{}, fmt.Errorf("runevents: %s cannot be written: %w", w.EventType, err)
	}
	pause := minEmitPause
	for {
		appended, after, err := e.try(ctx, body)
		if err == nil || after < 0 {
			return appended, err
		}
		timer := time.NewTimer(max(after, pause))
		select {
		case <-timer.C:
			pause = min(2*pause, maxEmitPause)
		case <-ctx.Done():
			timer.Stop()
			return Appended{}, fmt.Errorf("runevents: %s of run %s is not acknowledged yet: %w; the last try: %w",
				w.EventType, w.RunID, ctx.Err(), err)
		}
	}
}

// Pauses between two tries, where the authority asks for no longer one.
const (
	minEmitPause = 20 * time.Millisecond
	maxEmitPause = 2 * time.Second
)

// try asks the authority once. With an error it returns how long to wait at least before the next
// try, less than 0 when there should be none.
func (e *Emitter) try(ctx context.Context, body []byte) (Appended, time.Duration, error) {
	const never = -1
	tryCtx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	reply, err := e.config.Conn.RequestWithContext(tryCtx, AppendSubject(e.config.World), body)
	switch {
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return Appended{}, never, fmt.Errorf("runevents: append: %w", err)
	case err != nil: // silence, nobody there, NATS away: whether it was stored, the next try finds
		return Appended{}, 0, fmt.Errorf("runevents: append: %w", err)
	}
	if refused := refusalOf(reply); refused != nil {
		if refused.Status == 429 || refused.Status == 503 {
			return Appended{}, refused.RetryAfter, refused
		}
		return Appended{}, never, refused
	}
	var answer struct {
		Appended []Appended `json:"appended"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return Appended{}, never, fmt.Errorf("runevents: the answer to an append cannot be read: %w", err)
	}
	if len(answer.Appended) != 1 {
		return Appended{}, never, fmt.Errorf("runevents: an append of one event is answered with %d",
			len(answer.Appended))
	}
	return answer.Appended[0], 0, nil
}

// AppendError is what the append authority refused an event with: an error reply.
type AppendError struct {
	Status     int    // such as 400 and 409
	Code       string // such as SCHEMA_VALIDATION_FAILED and INVALID_TRANSITION
	Message    string
	Details    []schemas.Violation
	RetryAfter time.Duration
}

func (e *AppendError) Error() string {
	text := fmt.Sprintf("runevents: the append authority refused: %s: %s", e.Code, e.Message)
	for _, d := range e.Details {
		text += "; " + d.Path + ": " + d.Message
	}
	return text
}

// Headers of an error reply.
const (
	statusHeader     = "Nats-Service-Error-Code"
	retryAfterHeader = "Retry-After-Ms"
)

// refusalOf returns the error that a reply is, or nil.
func refusalOf(reply *nats.Msg) *AppendError {
	status := reply.Header.Get(statusHeader)
	if status == "" {
		return nil
	}
	var body struct {
		Error struct {
			Code    string              `json:"code"`
			Message string              `json:"message"`
			Details []schemas.Violation `json:"details"`
		} `json:"error"`
	}
	code, _ := strconv.Atoi(status) // 0 for what is no number: never tried again
	refused := &AppendError{Status: code, Message: "an error reply that cannot be read"}
	if json.Unmarshal(reply.Data, &body) == nil {
		refused.Code, refused.Message, refused.Details = body.Error.Code, body.Error.Message, body.Error.Details
	}
	if after, err := strconv.Atoi(reply.Header.Get(retryAfterHeader)); err == nil {
		refused.RetryAfter = time.Duration(after) * time.Millisecond
	}
	return refused
}
