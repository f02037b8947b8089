package index

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
)

// smallGap is how many messages are read one by one; to read more, a consumer is faster.
const smallGap = 64

// LogSource returns the Source on a log.
func LogSource(log *commitlog.Log) Source { return logSource{log} }

type logSource struct{ log *commitlog.Log }

// End implements Source.
func (s logSource) End(ctx context.Context) (uint64, error) { return s.log.End(ctx) }

// EachAfter implements Source.
func (s logSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) error {
	end, err := s.End(ctx)
	if err != nil {
		return err
	}
	if s.log.Stream == nil || end <= seq+smallGap {
		return s.oneByOne(ctx, seq, end, visit)
	}
	if err := commitlog.Each(ctx, s.log.Stream, seq, func(msg *jetstream.RawStreamMsg) error {
		seq = msg.Sequence
		return visit(seq, msg.Subject, msg.Header)
	}); err != nil {
		return err
	}
	return s.oneByOne(ctx, seq, end, visit)
}

// If the log seems to end early, next asks it endTries times, with pauses: NATS also says "not
// found" if it has trouble with its store, or if a new leader has not applied a message. After
// endTries, the rest counts as expired, or changed on the disk.
const endTries = 8

// EndPause is the pause between these tries; tests shorten it.
var EndPause = 250 * time.Millisecond

// next returns the first message after a sequence, or nil if there is none.
func (s logSource) next(
	ctx context.Context, seq uint64,
) (msg *jetstream.RawStreamMsg, err error) {
	for try := range endTries {
		if try > 0 {
			if err := backoff.Sleep(ctx, EndPause); err != nil {
				return nil, err
			}
		}
		msg, err = s.log.Next(ctx, ">", seq+1)
		if msg != nil || err != nil || s.log.Stream == nil {
			break
		}
	}
	return msg, err
}

func (s logSource) oneByOne(
	ctx context.Context, seq, end uint64, visit func(uint64, string, nats.Header) error,
) error {
	for seq < end {
		msg, err := s.next(ctx, seq)
		if msg == nil || err != nil {
			return err
		}
		seq = msg.Sequence
		if err := visit(seq, msg.Subject, msg.Header); err != nil {
			return err
		}
	}
	return nil
}

// Messages implements Source. A log without Stream counts as one that forgot nothing.
func (s logSource) Messages(ctx context.Context) (uint64, error) {
	if s.log.Stream == nil {
		return s.End(ctx)
	}
	info, err := s.log.Stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: state of the log: %w", commitlog.ErrLogUnavailable, err)
	}
	return info.State.Msgs, nil
}
