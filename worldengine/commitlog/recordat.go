package commitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrGone: the log no longer keeps the record: its subject's history was cut.
var ErrGone = errors.New("worldengine: the log does not keep the record any more")

// ErrDamaged: the record was changed on the disk of NATS and cannot be read. fsck names it.
var ErrDamaged = errors.New("worldengine: a record of the log is damaged; fsck names it")

// RecordAt reads the record at a sequence of the log, on one of some subjects. It returns ErrGone,
// ErrDamaged, or ErrLogUnavailable. A record that is missing behind a message of its subject is
// damaged, since the oldest go first.
func (l *Log) RecordAt(
	ctx context.Context, seq uint64, subjects ...string,
) (*Record, *jetstream.RawStreamMsg, error) {
	msg, err := l.Store.At(ctx, seq)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: log sequence %d: %w", ErrLogUnavailable, seq, err)
	}
	if msg != nil {
		rec, err := ReadRecord(msg.Data)
		if err != nil {
			err = fmt.Errorf("%w: log sequence %d: %w", ErrDamaged, seq, err)
		}
		return rec, msg, err
	}
	kept := len(subjects) == 0
	for _, subject := range subjects {
		first, err := l.Store.Next(ctx, subject, 1)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: subject %s: %w", ErrLogUnavailable, subject, err)
		}
		kept = kept || first != nil
		if first != nil && first.Sequence < seq {
			return nil, nil, l.missing(ctx, seq)
		}
	}
	if !kept { // each keeps its last message, so NATS is in trouble
		return nil, nil, fmt.Errorf("%w: log sequence %d: nothing of %s is delivered",
			ErrLogUnavailable, seq, strings.Join(subjects, ", "))
	}
	return nil, nil, ErrGone
}

// missing returns why the log does not deliver a record that it should have: it is damaged, unless
// the log is not the known one.
func (l *Log) missing(ctx context.Context, seq uint64) error {
	if l.Stream != nil {
		if err := l.Known.Check(ctx, l.Stream); err != nil {
			return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
		}
	}
	return fmt.Errorf("%w: log sequence %d", ErrDamaged, seq)
}
