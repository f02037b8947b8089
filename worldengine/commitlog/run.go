package commitlog

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// EventsAfter returns the first message that was appended to a run after log sequence seq, or nil.
func (l *Log) EventsAfter(
	ctx context.Context, runID string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Store.Next(ctx, wire.RunSubject(l.World, runID), seq+1)
	if err != nil {
		return nil, fmt.Errorf("%w: events of a run: %w", ErrLogUnavailable, err)
	}
	return msg, nil
}

// RunMessage returns the message of a record on its run's own subject. It expires, so that runs
// that are over cost nothing, and its id tells it from another writer's message with the same
// content.
func (l *Log) RunMessage(rec *Record) (*nats.Msg, error) {
	msg, err := Encode(rec, wire.RunSubject(l.World, rec.Run.RunID), nil)
	if err != nil {
		return nil, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{uuid.NewString()}
	msg.Header[jetstream.MsgTTLHeader] = []string{l.Retention.String()}
	return msg, nil
}

// CommitRun commits a record on its run's own subject, guarded by the last message there, and
// returns its sequence. Its errors are Commit's.
func (l *Log) CommitRun(ctx context.Context, rec *Record, guard uint64) (uint64, error) {
	msg, err := l.RunMessage(rec)
	if err != nil {
		return 0, err
	}
	return l.Commit(ctx, msg, guard)
}

// RunTail is the end of a run of the engine as the log's run subject has it.
type RunTail = machine.RunTail

// Tail reads the end of a run whose first events, emitted many, are in another record. It asks the
// log alone, not the bus, which may lag.
func (l *Log) Tail(ctx context.Context, runID string, emitted int64) (RunTail, error) {
	t := machine.NewTail(nil, emitted)
	for {
		msg, err := l.EventsAfter(ctx, runID, t.Guard)
		if err != nil || msg == nil {
			return *t, err
		}
		rec, err := ReadRecord(msg.Data)
		if err != nil || rec.Run == nil {
			return *t, fmt.Errorf("log sequence %d: a record of a run that cannot be read: %w",
				msg.Sequence, err)
		}
		t.Add(rec, msg.Sequence)
	}
}
