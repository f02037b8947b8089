package emit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// Config names the run whose events an Emitter emits, and its connection to the append authority.
// Conn, TownID and Identity are required; other zero values mean their defaults.
type Config struct {
	Conn     *nats.Conn         // required; stays the caller's, who closes it
	World    string             // default "main"
	TownID   string             // required; the town that the run is of
	Identity runevents.Identity // required; RunID has to match runevents.RunIDPattern
	// EngineAttemptID is the provider's number of this process's attempt, if it shows attempts;
	// default 1 (RunEvents v2.0.1, section 2.4).
	EngineAttemptID int64
	// Timeout bounds one try to append; default 5 s.
	Timeout time.Duration
	// Now is the producer's clock; default time.Now.
	Now func() time.Time
}

// Emitter emits the events of one run over the verb run.append. It is safe for concurrent use and
// emits one event at a time.
//
// It refuses events that are invalid in the state of the run that it knows, from its own events and
// the observed ones (RunEvents v2.0.1, section 5.3, layer 1).
type Emitter struct {
	config    Config
	authority authority

	turn    chan struct{} // holds a value while an Emit or Observe runs
	guard   *runevents.Guard
	ids     map[string]string             // the EventIdRegistry of the run: by idempotencyKey
	emitted map[string]runevents.Appended // by idempotencyKey
}

// New returns an emitter of a run that has no events yet. The error names a required member of
// config that is missing or wrong.
func New(config Config) (*Emitter, error) {
	switch {
	case config.Conn == nil:
		return nil, errors.New("emit: Config.Conn is missing: an emitter needs a NATS connection")
	case config.TownID == "":
		return nil, errors.New("emit: Config.TownID is empty: an emitter needs the town of its run")
	case !runevents.IsRunID(config.Identity.RunID):
		return nil, fmt.Errorf("emit: Config.Identity.RunID is %q: it has to match %s",
			config.Identity.RunID, runevents.RunIDPattern)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Emitter{
		config: config,
		authority: authority{
			conn: config.Conn, subject: wire.Subject(cmp.Or(config.World, wire.DefaultWorld),
				wire.RunAppend),
			timeout: cmp.Or(config.Timeout, 5*time.Second),
		},
		turn: make(chan struct{}, 1), guard: runevents.NewGuard(config.Identity.RunID),
		ids: map[string]string{}, emitted: map[string]runevents.Appended{},
	}, nil
}

// Observe adds persisted events of the run, in the order of runSeq: other producers', or its own
// from before a restart, which Emit then knows. It waits while an Emit runs. After
// runevents.ErrOtherRun or runevents.ErrNoRunSeq no event was added.
func (e *Emitter) Observe(records ...runevents.Record) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	return e.observe(records...)
}

func (e *Emitter) observe(records ...runevents.Record) error {
	if err := e.guard.Observe(records...); err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		e.emitted[r.IdempotencyKey] = runevents.Appended{
			EventID: r.EventID, RunSeq: r.RunSeq, PersistedAt: r.PersistedAt,
		}
	}
	return nil
}

// Emit appends one event and returns the metadata with which the authority persisted it. stepID is
// "" for an event of the run, attempt is the logicalAttemptId, from 1, and payload is nil or
// marshals to a JSON object.
//
// Emit retries, with the same eventId, while the authority is busy (429), unavailable (503) or
// silent, until ctx is done. Then, and after every other error, the caller may repeat the call,
// here
// or in another process: the authority stores the event once. For an event that was emitted before,
// Emit returns its metadata, with Idempotent set (section 2.5).
//
// After *runevents.InvalidTransitionError nothing was sent, and the emitter refuses every other
// event of that step attempt, or run. The other errors are *client.ReplyError if the authority
// refused, *schemas.ValidationError if the event violates its schema, and ctx's.
func (e *Emitter) Emit(
	ctx context.Context, event runevents.EventType, stepID string, attempt int64, payload any,
) (runevents.Appended, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return runevents.Appended{}, ctx.Err()
	}
	w, err := e.write(event, stepID, attempt, payload)
	if err != nil {
		return runevents.Appended{}, err
	}
	if before, ok := e.emitted[w.IdempotencyKey]; ok {
		before.Idempotent = true
		return before, nil
	}
	if err := e.guard.Check(&w); err != nil {
		return runevents.Appended{}, err
	}
	return e.append(ctx, w)
}

// append gives w its eventId, has the authority store it and applies it.
func (e *Emitter) append(ctx context.Context, w runevents.Write) (runevents.Appended, error) {
	w.EventID = e.ids[w.IdempotencyKey]
	if w.EventID == "" {
		w.EventID = uuid.NewString()
		e.ids[w.IdempotencyKey] = w.EventID
	}
	if err := w.Validate(); err != nil {
		return runevents.Appended{}, err
	}
	appended, err := e.authority.append(ctx, e.config.TownID, &w)
	if err != nil {
		return runevents.Appended{}, err
	}
	w.EventID = appended.EventID // the stored one, if an emitter before a restart drew another
	e.ids[w.IdempotencyKey] = w.EventID
	record := runevents.Record{
		Write: w, RunSeq: appended.RunSeq, PersistedAt: appended.PersistedAt,
	}
	if err := e.observe(record); err != nil {
		return runevents.Appended{}, fmt.Errorf(
			"emit: the authority answered an append without a valid runSeq: %w", err)
	}
	e.emitted[w.IdempotencyKey] = appended
	return appended, nil
}

// write returns the event without its eventId.
func (e *Emitter) write(
	event runevents.EventType, stepID string, attempt int64, payload any,
) (runevents.Write, error) {
	w, err := runevents.NewWrite(e.config.Identity, runevents.Event{
		EventType: event, StepID: stepID, LogicalAttemptID: attempt,
		EngineAttemptID: e.config.EngineAttemptID, EmittedAt: runevents.Timestamp(e.config.Now()),
	})
	if err != nil || payload == nil {
		return w, err
	}
	if w.Payload, err = json.Marshal(payload, json.Deterministic(true)); err != nil {
		return w, fmt.Errorf("emit: the payload of %s is not JSON: %w", event, err)
	}
	return w, nil
}
