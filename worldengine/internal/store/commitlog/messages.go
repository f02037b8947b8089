package commitlog

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
)

// At returns the message at a sequence, nil if there is none. The error is ErrLogUnavailable.
func (l *Log) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Store.At(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("%w: log sequence %d: %w", ErrLogUnavailable, seq, err)
	}
	return msg, nil
}

// Next returns the first message of a subject at or after a sequence, nil if there is none. The
// error is ErrLogUnavailable.
func (l *Log) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Store.Next(ctx, subject, from)
	if err != nil {
		return nil, fmt.Errorf("%w: %s from log sequence %d: %w", ErrLogUnavailable, subject, from,
			err)
	}
	return msg, nil
}

// NextBefore returns the first message at or after a sequence, nil if the log keeps none up to end,
// at which it has been. The error is ErrLogUnavailable, also if the log's leader is not yet at end.
func (l *Log) NextBefore(
	ctx context.Context, from, end uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := nextBefore(ctx, l.Store, from, end)
	if err != nil {
		return nil, fmt.Errorf("%w: from log sequence %d: %w", ErrLogUnavailable, from, err)
	}
	return msg, nil
}

// CheckContinuity returns an ErrLogUnavailable if the log may be another one, or have lost its end. It asks
// the log only after a doubt.
func (l *Log) CheckContinuity(ctx context.Context) error {
	if err := l.Continuity.allowAppend(ctx, l.Stream); err != nil {
		return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	return nil
}

// MessageAt returns the message at a sequence, which is on one of the subjects. The error is ErrGone,
// ErrDamaged, or ErrLogUnavailable. A missing message counts as damaged if the log keeps an older one
// of its subject, since the log discards the oldest first.
func (l *Log) MessageAt(
	ctx context.Context, seq uint64, subjects ...string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := l.At(ctx, seq)
	if msg == nil && err == nil {
		err = l.missing(ctx, seq, subjects)
	}
	return msg, err
}

// missing returns the error of MessageAt for a message that the log does not deliver.
func (l *Log) missing(ctx context.Context, seq uint64, subjects []string) error {
	kept := len(subjects) == 0
	for _, subject := range subjects {
		first, err := l.Next(ctx, subject, 1)
		if err != nil {
			return err
		}
		kept = kept || first != nil
		if first == nil || first.Sequence > seq {
			continue
		}
		if l.Stream != nil { // the log may be another one
			if err := l.Continuity.Verify(ctx, l.Stream); err != nil {
				return fmt.Errorf("%w: %w", ErrLogUnavailable, err)
			}
		}
		return fmt.Errorf("%w: log sequence %d", ErrDamaged, seq)
	}
	if !kept { // a subject always keeps its last message, so NATS fails
		return fmt.Errorf("%w: log sequence %d: nothing of %s is delivered", ErrLogUnavailable, seq,
			strings.Join(subjects, ", "))
	}
	return ErrGone
}

// LastBefore returns the last message of a subject before a sequence, or nil. It bisects the log, for
// a guard that names a lost message: the message expired, with all before it, or was changed on the
// disk of NATS.
func (l *Log) LastBefore(
	ctx context.Context, subject string, below uint64,
) (*jetstream.RawStreamMsg, error) {
	var found *jetstream.RawStreamMsg
	for from, middle, to := uint64(1), uint64(1), below; from < to; middle = from + (to-from)/2 {
		next, err := l.Next(ctx, subject, middle)
		if err != nil {
			return nil, err
		}
		if next == nil || next.Sequence >= below {
			to = middle
		} else {
			found, from = next, next.Sequence+1
		}
	}
	return found, nil
}

// IsHistory reports whether each message on a subject of the log is guarded by the sequence of the
// one before it: on a town's subject, and on the subjects of the world's pauses and settings.
func IsHistory(world, subject string) bool {
	return subject == layout.PauseSubject(world) || subject == layout.SettingsSubject(world) ||
		IsTownHistory(world, subject)
}

// IsTownHistory reports whether a subject of the log is a town's.
func IsTownHistory(world, subject string) bool {
	token, ofTown := strings.CutPrefix(subject, layout.LogSubject(world, ""))
	return ofTown && token != "" && !strings.ContainsAny(token, ".*>")
}

// HistoryLimit returns how many messages the log keeps of each subject, by NATS's last answer about the
// stream. A logwatch.Watcher asks for one at least every 10 s.
func (l *Log) HistoryLimit() int64 {
	if l.Stream != nil {
		if history := l.Stream.CachedInfo().Config.MaxMsgsPerSubject; history > 0 {
			return history
		}
	}
	return cmp.Or(l.FixedHistory, math.MaxInt64)
}

// CountMessages returns how many messages the log has on a subject.
func (l *Log) CountMessages(ctx context.Context, subject string) (n int64, err error) {
	if l.Stream != nil {
		counts, err := SubjectsOf(ctx, l.Stream, subject)
		return int64(counts[subject]), err
	}
	for from := uint64(1); ; n++ {
		msg, err := l.Next(ctx, subject, from)
		if msg == nil || err != nil {
			return n, err
		}
		from = msg.Sequence + 1
	}
}
