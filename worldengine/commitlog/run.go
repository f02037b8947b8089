package commitlog

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// LastEvents returns the last message that was appended to a run, or nil.
func (l *Log) LastEvents(ctx context.Context, runID string) (*jetstream.RawStreamMsg, error) {
	return ofRun(l.Store.Last(ctx, wire.RunSubject(l.World, runID)))
}

// EventsAfter returns the first message that was appended to a run after log sequence seq, or nil.
func (l *Log) EventsAfter(
	ctx context.Context, runID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	return ofRun(l.Store.Next(ctx, wire.RunSubject(l.World, runID), seq+1))
}

func ofRun(msg *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: events of a run: %w", ErrLogUnavailable, err)
	}
	return msg, nil
}

// RunTail is the end of a run of the engine as the log's run subject has it.
type RunTail struct {
	Guard uint64 // the log sequence of the last message there
	Next  int64  // the runSeq of the next event
	keys  map[string]struct{}
	// Closed reports whether only the engine goes on with the run, Cancelled whether an operator
	// ended it.
	Closed, Cancelled bool
	// Waiting is the record that began a run which waits for its town, or nil: of a run that began
	// with the decision about its handoff.
	Waiting *Record
	// Status is where the events of the engine there have brought the run: "" where there are none.
	Status runevents.RunStatus
	// Pauses counts RunPaused there, and PausedAt is the runSeq of the last one that no RunResumed
	// follows there, 0 for none. A run that waited for its decision is resumed with that,
	// elsewhere.
	Pauses, PausedAt int64
}

// Tail reads the end of a run whose first events, emitted many, stand in another record. It asks
// the log alone: how far the bus has followed means nothing to it.
func (l *Log) Tail(ctx context.Context, runID string, emitted int64) (RunTail, error) {
	t := RunTail{Next: emitted + 1, keys: map[string]struct{}{}}
	for {
		msg, err := l.EventsAfter(ctx, runID, t.Guard)
		if err != nil || msg == nil {
			return t, err
		}
		rec, err := ReadRecord(msg.Data)
		if err != nil || rec.Run == nil {
			return t, fmt.Errorf("log sequence %d: a record of a run that cannot be read: %w",
				msg.Sequence, err)
		}
		t.Guard = msg.Sequence
		t.Next = max(t.Next, rec.Run.FirstSeq+int64(len(rec.Run.Events)))
		if rec.Kind == KindRun {
			t.Closed = rec.Closing
		}
		for _, r := range rec.Run.Records(At(msg)) {
			t.keys[r.IdempotencyKey] = struct{}{}
			if rec.Kind == KindRun {
				t.take(rec, r.EventType, r.RunSeq)
			}
		}
	}
}

// take takes in an event of the engine in a record.
func (t *RunTail) take(rec *Record, event runevents.EventType, runSeq int64) {
	switch event {
	case runevents.RunQueued, runevents.RunStarted:
		if t.Waiting == nil {
			t.Waiting = rec
		}
	case runevents.RunPaused:
		t.Pauses++
		t.PausedAt = runSeq
	case runevents.RunResumed:
		t.PausedAt = 0
	case runevents.RunCancelled:
		t.Cancelled = true
	}
	if status, _ := runevents.NextRunStatus("", event); status != "" {
		t.Status = status
	}
}

// Without returns the events of run that the run subject does not have.
func (t *RunTail) Without(run *runevents.Run) []runevents.Event {
	var fresh []runevents.Event
	for i, r := range run.Records(noTime) {
		if _, known := t.keys[r.IdempotencyKey]; !known {
			fresh = append(fresh, run.Events[i])
		}
	}
	return fresh
}

// noTime is for what does not look at persistedAt.
var noTime time.Time
