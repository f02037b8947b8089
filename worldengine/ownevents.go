package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
)

// runTail is the end of a run of the engine as the log's run subject has it.
type runTail struct {
	guard uint64 // the log sequence of the last message there
	next  int64  // the runSeq of the next event
	keys  map[string]struct{}
	// closed says that nobody but the engine goes on with the run, cancelled that an operator ended it.
	closed, cancelled bool
	// paused is the record that says that the run waits for the end of a pause, or nil.
	paused *record
}

// tail reads the end of a run whose first events, emitted many, stand in another record. It asks the
// log alone: how far the bus has followed means nothing to it.
func (l *commitLog) tail(ctx context.Context, runID string, emitted int64) (runTail, error) {
	t := runTail{next: emitted + 1, keys: map[string]struct{}{}}
	for {
		msg, err := l.eventsAfter(ctx, runID, t.guard)
		if err != nil || msg == nil {
			return t, err
		}
		rec, err := readRecord(msg.Data)
		if err != nil || rec.Run == nil {
			return t, fmt.Errorf("log sequence %d: a record of a run that cannot be read: %w", msg.Sequence, err)
		}
		t.guard = msg.Sequence
		t.next = max(t.next, rec.Run.FirstSeq+int64(len(rec.Run.Events)))
		if rec.Kind == kindRun {
			t.closed = rec.Closing
		}
		for _, r := range rec.Run.Records(msg.Time) {
			t.keys[r.IdempotencyKey] = struct{}{}
			t.cancelled = t.cancelled || rec.Kind == kindRun && r.EventType == runevents.RunCancelled
			if rec.Kind == kindRun && r.EventType == runevents.RunPaused {
				t.paused = rec
			}
		}
	}
}

// without returns the events of run that the run subject does not have.
func (t *runTail) without(run *runevents.Run) []runevents.Event {
	var fresh []runevents.Event
	for i, r := range run.Records(noTime) {
		if _, known := t.keys[r.IdempotencyKey]; !known {
			fresh = append(fresh, run.Events[i])
		}
	}
	return fresh
}

// extendRun stores events that the engine emits between its commits, those that are not there yet, and
// with closing keeps everybody else from going on with the run. It returns the run's end, or
// ErrRunCancelled. Doing it again is harmless.
func (e *Engine) extendRun(
	ctx context.Context, townID string, run *runevents.Run, emitted int64, closing bool,
) (runTail, error) {
	for race := range maxRaces {
		e.yield(ctx, race)
		tail, err := e.log.tail(ctx, run.RunID, emitted)
		if err != nil {
			return tail, err
		}
		if tail.cancelled {
			return tail, ErrRunCancelled
		}
		fresh := tail.without(run)
		if len(fresh) == 0 && (!closing || tail.closed) {
			return tail, nil
		}
		batch := runevents.Run{Identity: run.Identity, FirstSeq: tail.next, Events: fresh}
		// Whoever reads the last message alone has to see it too when the run was closed before.
		rec := record{Kind: kindRun, TownID: townID, Run: &batch, Closing: closing || tail.closed}
		msg, err := e.runMessage(&rec)
		if err != nil {
			return tail, err
		}
		if _, err := e.log.commit(ctx, msg, tail.guard); err != nil && !errors.Is(err, errLostRace) {
			return tail, err
		}
	}
	return runTail{}, ErrContended
}

// reopenRun lets others go on with a run that was closed, because its end is not near after all. Who finds
// it closed for longer than it has to be loses nothing, so an error is only told.
func (e *Engine) reopenRun(ctx context.Context, townID string, identity runevents.Identity, emitted int64) {
	tail, err := e.log.tail(ctx, identity.RunID, emitted)
	if err == nil && !tail.closed {
		return
	}
	var msg *nats.Msg
	if err == nil {
		open := runevents.Run{Identity: identity, FirstSeq: tail.next}
		msg, err = e.runMessage(&record{Kind: kindRun, TownID: townID, Run: &open})
	}
	if err == nil {
		_, err = e.log.commit(ctx, msg, tail.guard)
	}
	if err != nil {
		e.config.Logger.Warn("a run takes no events of others until its end", "run", identity.RunID, "error", err)
	}
}

// noTime is for what does not look at persistedAt.
var noTime time.Time
