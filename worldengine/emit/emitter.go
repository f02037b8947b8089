// Package emit emits run events from a process that is not the engine, such as the worker of a plugin, over the verb
// run.append (RunEvents v2.0.1, sections 2.5 and 5.3). Use it to show the steps of long work in the run of a command, or
// to record runs of your own. Package runevents defines events and their valid transitions.
//
//	Emitter ── worldengine.v1.<world>.run.append ──> the engine, which is the append authority
//
// The request is a run-append-request.v1 with one event; the answer is a run-append-reply.v1, or an
// error reply with the header Nats-Service-Error-Code and, on 429 and 503, Retry-After-Ms.
//
// The Emitter draws the eventId of each event once, before it sends the event, so that every retry
// has the same eventId. After a restart it draws anew: the authority stores an event once, by its
// idempotency key, and returns the stored eventId, which the Emitter adopts (section 2.5.1).
//
// A run of the engine accepts events of others' steps until it ends: a plugin emits the events of a
// command before it answers. After that a new event is refused with RUN_ENDED.
package emit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Config names the run whose events an Emitter emits. All but EngineAttemptID is required.
type Config struct {
	Client   *client.Client     // asks the append authority; its Timeout bounds one try to append
	TownID   string             // the town that the run is of
	Identity runevents.Identity // RunID has to pass runevents.IsRunID
	// EngineAttemptID is the provider's number of this process's attempt, if it shows attempts;
	// default 1 (RunEvents v2.0.1, section 2.4).
	EngineAttemptID int64
}

// Emitter emits the events of one run over the verb run.append. It is safe for concurrent use and
// emits one event at a time.
//
// It refuses events that are invalid in the state of the run that it knows, from its own events and
// the observed ones (RunEvents v2.0.1, section 5.3, layer 1).
type Emitter struct {
	config Config
	turn   chan struct{} // holds a value while an Emit or Observe runs
	// known has the events that are persisted, and drawn the eventIds of all others that may be, by
	// idempotency key: the EventIdRegistry of the run.
	known *runlog.State
	drawn map[string]string
	// stopped has the first refusal of a step attempt or, without a stepId, of the run.
	stopped map[entity]error
}

type entity struct {
	stepID  string
	attempt int64
}

// New returns an emitter of a run that has no events yet. The error names a required member of
// config that is missing or wrong.
func New(config Config) (*Emitter, error) {
	switch {
	case config.Client == nil:
		return nil, errors.New("emit: Config.Client is missing: an emitter asks over a client")
	case config.TownID == "":
		return nil, errors.New("emit: Config.TownID is empty: an emitter needs the town of its run")
	case !runevents.IsRunID(config.Identity.RunID):
		return nil, fmt.Errorf("emit: Config.Identity.RunID is %q: it has to have 1 to %d bytes and no |",
			config.Identity.RunID, runevents.MaxRunID)
	}
	config.EngineAttemptID = cmp.Or(config.EngineAttemptID, 1)
	return &Emitter{
		config: config, turn: make(chan struct{}, 1),
		known: runlog.NewState(config.Identity.RunID, runlog.AppendPolicy{}),
		drawn: map[string]string{}, stopped: map[entity]error{},
	}, nil
}

// Observe adds persisted events of the run, in the order of runSeq: other producers', or its own
// from before a restart, which Emit then knows. It waits while an Emit runs. After
// runevents.ErrOtherRun or runevents.ErrNoRunSeq no event was added.
func (e *Emitter) Observe(records ...runevents.Record) error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	_, err := e.known.Add(false, records...)
	return err
}

// Emit appends one event and returns the metadata with which the authority persisted it. stepID is
// "" for an event of the run, attempt is the logicalAttemptId, from 1, and payload is nil or
// marshals to a JSON object.
//
// Emit retries, with the same eventId, while the authority is busy (429), unavailable (503) or
// silent, until ctx is done. Then, and after every other error, the caller may repeat the call, here
// or in another process: the authority stores the event once. For an event that was emitted before,
// Emit returns its metadata, with Idempotent set (section 2.5).
//
// After *runevents.InvalidTransitionError nothing was sent, and the emitter refuses every other
// event of that step attempt, or run. The other errors are *client.ReplyError if the authority
// refused, *client.UnavailableError if its answer is unreadable or the connection was closed,
// *schemas.ValidationError if the event violates its schema, and ctx's.
func (e *Emitter) Emit(
	ctx context.Context, event runevents.EventType, stepID string, attempt int64, payload any,
) (runevents.Appended, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return runevents.Appended{}, ctx.Err()
	}
	w := runlog.NewWrite(e.config.Identity, runlog.Event{
		EventType: event, StepID: stepID, LogicalAttemptID: attempt,
		EngineAttemptID: e.config.EngineAttemptID, EmittedAt: runevents.Timestamp(time.Now()),
	})
	w.EventID = cmp.Or(e.drawn[w.IdempotencyKey], uuid.NewString())
	if payload != nil {
		data, err := json.Marshal(payload, json.Deterministic(true))
		if err != nil {
			return runevents.Appended{}, fmt.Errorf("emit: the payload of %s is not JSON: %w", event,
				err)
		}
		w.Payload = data
	}
	if err := w.Validate(); err != nil {
		return runevents.Appended{}, err
	}
	if known, ok := e.known.Find(w.IdempotencyKey); ok {
		return known, nil
	}
	if err := e.check(&w); err != nil {
		return runevents.Appended{}, err
	}
	e.drawn[w.IdempotencyKey] = w.EventID
	appended, err := e.append(ctx, &w)
	if err != nil {
		return runevents.Appended{}, err
	}
	w.EventID = appended.EventID // the stored one, if an emitter before a restart drew another
	if _, err := e.known.Add(false, runevents.Record{
		Write: w, RunSeq: appended.RunSeq, PersistedAt: appended.PersistedAt,
	}); err != nil {
		return runevents.Appended{}, fmt.Errorf(
			"emit: the authority answered an append without a valid runSeq: %w", err)
	}
	return appended, nil
}

// check refuses w if it is not valid as the next event, or an event of its step attempt, or of its
// run, was refused before.
func (e *Emitter) check(w *runevents.Write) error {
	of := entity{stepID: w.StepID}
	if w.StepID != "" {
		of.attempt = w.LogicalAttemptID
	}
	if e.stopped[of] == nil {
		e.stopped[of] = e.known.Check(w)
	}
	return e.stopped[of]
}

// append sends w until the authority has stored or refused it, or ctx is done.
func (e *Emitter) append(ctx context.Context, w *runevents.Write) (runevents.Appended, error) {
	request := messages.RunAppend{TownID: e.config.TownID, Events: []runevents.Write{*w}}
	var answer messages.Appended
	err := e.config.Client.Patiently(ctx, func() error {
		_, err := e.config.Client.Ask(ctx, wire.RunAppend, request, &answer)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return runevents.Appended{}, fmt.Errorf("emit: %s of run %s is not acknowledged yet: %w",
			w.EventType, w.RunID, err)
	case err != nil:
		return runevents.Appended{}, err
	case len(answer.Appended) != 1:
		return runevents.Appended{}, fmt.Errorf(
			"emit: the authority answered an append of one event with %d", len(answer.Appended))
	}
	return answer.Appended[0], nil
}
