package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// RunMessage returns the message of a record on its run's own subject. The message expires, so that
// ended runs cost nothing. Its id tells it from another writer's message with the same content.
func (l *Log) RunMessage(rec *machine.Record) (*nats.Msg, error) {
	msg, err := Encode(rec, layout.RunSubject(l.World, layout.RunToken(rec.Run.RunID)), nil)
	if err != nil {
		return nil, err
	}
	msg.Header[jetstream.MsgIDHeader] = []string{uuid.NewString()}
	msg.Header[jetstream.MsgTTLHeader] = []string{l.Retention.String()}
	return msg, nil
}

// CommitRun commits a record on its run's own subject, guarded by the last message there, and
// returns its sequence. Its errors are Commit's.
func (l *Log) CommitRun(ctx context.Context, rec *machine.Record, guard uint64) (uint64, error) {
	msg, err := l.RunMessage(rec)
	if err != nil {
		return 0, err
	}
	seq, err := l.Commit(ctx, msg, guard)
	if guard > 0 && errors.Is(err, commitlog.ErrUnreadable) {
		return l.Commit(ctx, msg, 0) // NATS takes no other sequence for a last message that was changed on the disk
	}
	return seq, err
}

// fewMessages is how many messages Tail reads one by one; to read more, a consumer is faster.
const fewMessages = 16

// Tail reads the end of a run. The run's first events, as many as emitted, are in another record.
// Tail reads the log, since the bus may lag. It reads a long run in bulk: other producers may append
// any number of messages, and the run cannot end before Tail has read them all.
func (l *Log) Tail(ctx context.Context, runID string, emitted int64) (machine.RunTail, error) {
	t, subject := machine.NewTail(nil, emitted), layout.RunSubject(l.World, layout.RunToken(runID))
	add := func(msg *jetstream.RawStreamMsg) error {
		rec, err := Read(msg.Data)
		if err != nil || rec.Run == nil {
			return fmt.Errorf("log sequence %d: a record of a run that cannot be read: %w",
				msg.Sequence, err)
		}
		t.Add(rec, msg.Sequence)
		return nil
	}
	for read := 1; ; read++ {
		msg, err := l.Next(ctx, subject, t.Guard+1)
		if err != nil || msg == nil {
			return *t, err
		}
		if err := add(msg); err != nil {
			return *t, err
		}
		if read%fewMessages > 0 || l.Stream == nil {
			continue
		}
		var bad error
		// An error of NATS leaves the rest to Next.
		_, _ = commitlog.ScanSubject(ctx, l.Stream, subject, t.Guard+1, false,
			func(msg *jetstream.RawStreamMsg) error { bad = add(msg); return bad })
		if bad != nil {
			return *t, bad
		}
	}
}
