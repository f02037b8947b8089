package worldengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/schemas"
)

// AppendEvents is the append authority for writers other than the engine itself: it persists events
// of one run, together or not at all, and returns how each is persisted, in the order of writes.
//
// What is new gets the next places of its run, unique and strictly increasing whoever appends where,
// and the time at which the log's stream stored it as its persistedAt. A write whose (runId,
// idempotencyKey) the run has stores nothing and gets that event's eventId, runSeq and persistedAt, as
// long as the event is kept: one that Config.EventRetention or Config.EventLimit has discarded may be
// stored again, at a new place. A run of which nothing is kept begins at runSeq 1 again. Events of
// unknown types are stored like any others.
//
// Writes are refused as a whole: with a *schemas.ValidationError with the paths of a
// run-append-request.v1, a *runevents.TransitionError where Config.ValidateTransitions asks for it,
// or runevents.ErrRunEnding while the engine is about to end the run. After any other
// error the writes may have been stored; appending them again is safe and tells.
func (e *Engine) AppendEvents(
	ctx context.Context, townID string, writes []runevents.Write,
) ([]runevents.Appended, error) {
	return wait(ctx, func(done func([]runevents.Appended, error)) error {
		return e.SubmitEvents(townID, writes, done)
	})
}

// SubmitEvents is AppendEvents for a caller that does not wait: done is called once, from another
// goroutine. Appends to one run are worked on in the order of their submission. An error of
// SubmitEvents itself (a *schemas.ValidationError, ErrOverloaded, ErrStopping) means that done is not
// called. The writes must not be changed before it is.
func (e *Engine) SubmitEvents(
	townID string, writes []runevents.Write, done func([]runevents.Appended, error),
) error {
	if townID == "" {
		return invalidTown("must not be empty")
	}
	if err := runevents.CheckAppend(writes); err != nil {
		return err
	}
	// A run has its turns as a town has; a town whose id reads like this shares them, no more.
	return e.queues.submit("run "+writes[0].RunID, func(ctx context.Context, _ bool) {
		appended, err := []runevents.Appended(nil), error(errPanicked)
		defer func() { done(appended, err) }()
		appended, err = e.appendEvents(ctx, townID, writes)
	})
}

func invalidTown(message string) error {
	return schemas.Invalid(schemas.RunAppendRequest, schemas.Violation{Path: "/townId", Message: message})
}

// appendEvents decides about writes on what this instance knows of their run, and stores what is
// new, guarded by the run's last message in the log. It owns the run within this instance.
//
// What is known may be behind the log, so a refusal counts only when it was read afresh. A duplicate
// is one for good: what is persisted does not change.
func (e *Engine) appendEvents(
	ctx context.Context, townID string, writes []runevents.Write,
) ([]runevents.Appended, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	run, fresh, err := e.knownRun(ctx, writes[0].RunID)
	if err != nil {
		return nil, err
	}
	for race := range maxRaces {
		e.yield(ctx, race)
		plan, err := run.plan(townID, writes)
		if err == nil {
			var appended []runevents.Appended
			if appended, err = e.store(ctx, run, townID, &plan); err == nil {
				e.runs.keep(run)
				return appended, nil
			}
			if !errors.Is(err, errLostRace) {
				return nil, err
			}
		} else if fresh {
			e.runs.keep(run)
			return nil, err
		}
		if run, err = e.refreshRun(ctx, run); err != nil {
			return nil, err
		}
		fresh = true
	}
	return nil, ErrContended
}

// knownRun returns what is known of a run, and whether it was read afresh: a run that this instance
// does not know, and one that the engine may have gone on with, is.
func (e *Engine) knownRun(ctx context.Context, runID string) (run *knownRun, fresh bool, err error) {
	if run = e.runs.take(runID); run == nil {
		run = e.newKnownRun(runID)
	} else if !run.state.Open() {
		return run, false, nil
	}
	return run, true, e.readRun(ctx, run)
}

func (e *Engine) newKnownRun(runID string) *knownRun {
	return &knownRun{
		runID: runID, epoch: e.runs.now(),
		state: runevents.NewRunState(runID, e.config.ValidateTransitions),
	}
}

// plan is RunState.Plan for a run of which the town is known too.
func (r *knownRun) plan(townID string, writes []runevents.Write) (runevents.Plan, error) {
	if r.token != "" && r.token != TownToken(townID) {
		return runevents.Plan{}, invalidTown("must be the town that the run is of")
	}
	return r.state.Plan(writes)
}

// store commits what is new and returns what to answer. The run is up to date then.
func (e *Engine) store(
	ctx context.Context, run *knownRun, townID string, plan *runevents.Plan,
) ([]runevents.Appended, error) {
	if len(plan.Run.Events) == 0 {
		return plan.Results(time.Time{}), nil
	}
	msg, err := e.runMessage(&record{Kind: kindEvents, TownID: townID, Run: &plan.Run})
	if err != nil {
		return nil, err
	}
	seq, err := e.log.commit(ctx, msg, run.guard)
	if err != nil {
		return nil, err
	}
	stored, err := e.log.message(ctx, seq)
	if err != nil {
		return nil, err
	}
	if err := run.add(false, seq, TownToken(townID), &plan.Run, stored.Time); err != nil {
		return nil, err
	}
	return plan.Results(stored.Time), nil
}

// runMessage is the log message of a record on a run's subject. It expires with the events that are
// derived from it, so that runs that are over cost nothing, and its id tells it from another
// instance's message with the same content.
func (e *Engine) runMessage(rec *record) (*nats.Msg, error) {
	msg, err := rec.message(runSubject(e.config.World, rec.Run.RunID), nil)
	if err != nil {
		return nil, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{uuid.NewString()}
	msg.Header[jetstream.MsgTTLHeader] = []string{e.config.EventRetention.String()}
	return msg, nil
}

// readRun reads all that a run has and this instance does not know: from the event stream once that
// has followed the log to its end, where the engine's own events are too, and from the run's last
// message in the log.
func (e *Engine) readRun(ctx context.Context, run *knownRun) error {
	last, err := e.log.lastEvents(ctx, run.runID)
	if err != nil {
		return err
	}
	if err := e.catchUp(ctx, e.eventFollower); err != nil {
		return fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	if err := e.readStream(ctx, run); err != nil {
		return err
	}
	if last == nil {
		run.guard = 0 // nothing was appended, or it has expired
		return nil
	}
	return run.take(last)
}

// readStream adds what the event stream has of a run beyond what was read of it before.
func (e *Engine) readStream(ctx context.Context, run *knownRun) error {
	last, err := e.lastEvent(ctx, run.runID)
	if err != nil || last == nil {
		return err
	}
	tokens := strings.Split(last.subject, ".")
	run.token = tokens[len(tokens)-2]
	if last.streamSeq < run.streamSeq { // the stream is another one
		run.streamSeq = 0
	}
	type stored struct {
		runevents.Record
		byEngine bool
	}
	var all []stored
	for run.streamSeq < last.streamSeq {
		msg, err := e.events.GetMsg(ctx, run.streamSeq+1, jetstream.WithGetMsgSubject(last.subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break // expired meanwhile
		}
		if err != nil {
			return fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
		}
		r := stored{byEngine: recordKind(msg.Header.Get(kindHeader)) != kindEvents}
		if err := json.Unmarshal(msg.Data, &r.Record); err != nil {
			return fmt.Errorf("worldengine: event stream sequence %d: %w", msg.Sequence, err)
		}
		all, run.streamSeq = append(all, r), msg.Sequence
	}
	slices.SortFunc(all, func(a, b stored) int { return cmp.Compare(a.RunSeq, b.RunSeq) })
	for i := range all {
		if err := run.state.Add(all[i].byEngine, all[i].Record); err != nil {
			return err
		}
	}
	return nil
}

// refreshRun takes in what other instances have appended to a run meanwhile. A run that has lost
// its place in the log is read anew.
func (e *Engine) refreshRun(ctx context.Context, run *knownRun) (*knownRun, error) {
	if run.state.Open() {
		return run, e.readRun(ctx, run)
	}
	before := run.guard
	for {
		next, err := e.log.eventsAfter(ctx, run.runID, run.guard)
		if err != nil {
			return nil, err
		}
		if next == nil {
			break
		}
		if err := run.take(next); err != nil {
			return nil, err
		}
	}
	if run.guard == before {
		run = e.newKnownRun(run.runID)
		return run, e.readRun(ctx, run)
	}
	return run, nil
}

// lastEvents returns the last message that was appended to a run, or nil.
func (l *commitLog) lastEvents(ctx context.Context, runID string) (*jetstream.RawStreamMsg, error) {
	return ofRun(l.store.last(ctx, runSubject(l.world, runID)))
}

// eventsAfter returns the first message that was appended to a run after log sequence seq, or nil.
func (l *commitLog) eventsAfter(
	ctx context.Context, runID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	return ofRun(l.store.next(ctx, runSubject(l.world, runID), seq+1))
}

func ofRun(msg *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: events of a run: %w", ErrLogUnavailable, err)
	}
	return msg, nil
}
