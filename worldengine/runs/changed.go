package runs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// A mark is a sequence of the log. It says up to where a list, or what was read of a run, is
// complete: every event that was made of a log message up to there. The event stream has its
// messages in the order of the log, and each names the log message that it was made of, so a mark
// is the same one after the event stream was made again. That is also the case on the bus, where
// the header Log-Seq of an event is its mark.

// catchUpToMark is catchUp, and returns the mark up to which the event stream is complete then.
func (s *Store) catchUpToMark(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, commitlog.CatchUpTimeout)
	defer cancel()
	end, err := s.log.End(ctx)
	if err == nil {
		err = s.Follower.Wait(ctx, end)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	return end, nil
}

// Mark returns the mark up to which a list would be complete now. It fails as List does.
func (s *Store) Mark(ctx context.Context) (uint64, error) { return s.catchUpToMark(ctx) }

// changed looks for the runs that have an event behind a mark, by the first such event.
type changed struct {
	store *Store
	from  uint64 // the sequence of the event stream with the first event behind the mark
	seen  map[string]bool
}

// changedAfter returns what looks for the runs of a filter that have an event behind its mark, or
// nil where the filter has none.
func (s *Store) changedAfter(ctx context.Context, filter *RunFilter) (*changed, error) {
	if filter.AfterMark == nil {
		return nil, nil
	}
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	first, end := max(info.State.FirstSeq, 1), info.State.LastSeq+1
	from, err := s.firstOf(ctx, first, end, func(msg *jetstream.RawStreamMsg) (known,
		is bool, err error) {
		mark := markOf(msg.Header.Get(wire.LogSeqHeader))
		return mark > 0, mark > *filter.AfterMark, nil
	})
	return &changed{store: s, from: from, seen: map[string]bool{}}, err
}

// take reports whether an event, at a sequence of the event stream, is the first of its run behind
// the mark.
func (c *changed) take(
	ctx context.Context, subject string, event *runStart, seq uint64,
) (bool, error) {
	if c.seen[event.RunID] {
		return false, nil
	}
	c.seen[event.RunID] = true
	if event.RunSeq == 1 || seq == c.from {
		return true, nil
	}
	first, err := commitlog.NextStored(ctx, c.store.Stream, subject, c.from)
	return err == nil && first != nil && first.Seq == seq, err
}

// firstSince returns the sequence of the first event that was persisted at a time or later, among
// those from first on and before end, and end where there is none or the time is zero. Events are
// in the order of persistedAt.
func (s *Store) firstSince(ctx context.Context, at time.Time, first, end uint64) (uint64, error) {
	if at.IsZero() {
		return end, nil
	}
	return s.firstOf(ctx, first, end, func(msg *jetstream.RawStreamMsg) (known,
		is bool, err error) {
		persisted, err := persistedAt(msg.Data, msg.Sequence)
		return true, !persisted.Before(at), err
	})
}

// firstOf returns the sequence of the first event that is such as is sought, among those from first
// on and before end, and end where there is none. All events behind it are such as well; of those
// for which that is not known it takes the next one's word.
func (s *Store) firstOf(
	ctx context.Context, first, end uint64,
	sought func(*jetstream.RawStreamMsg) (known, is bool, err error),
) (uint64, error) {
	subject := wire.EventSubject(s.config.World, "*", "*")
	for from := first; from < end; {
		middle := from + (end-from)/2
		for at := middle; ; {
			msg, err := s.Stream.GetMsg(ctx, at, jetstream.WithGetMsgSubject(subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Sequence >= end {
				end = middle
				break
			}
			if err != nil {
				return 0, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
			}
			known, is, err := sought(msg)
			if err != nil {
				return 0, err
			}
			if at = msg.Sequence + 1; !known {
				continue
			}
			if is {
				end = middle
			} else {
				from = at
			}
			break
		}
	}
	return end, nil
}

// markOf reads a header Log-Seq; 0 where it is none.
func markOf(header string) uint64 {
	mark, _ := strconv.ParseUint(header, 10, 64)
	return mark
}
