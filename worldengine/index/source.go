package index

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
)

// Counter is a Source that counts its messages. Without it an index does not compact itself.
type Counter interface {
	// Messages returns how many messages the log keeps.
	Messages(ctx context.Context) (uint64, error)
}

// smallGap is how many messages are read one by one; for more it pays to make a consumer.
const smallGap = 64

// LogSource returns the Source on a log, which is a Counter too.
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
	return commitlog.Each(ctx, s.log.Stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq + 1,
	}, func(msg jetstream.Msg, seq uint64) error {
		return visit(seq, msg.Subject(), msg.Headers())
	})
}

func (s logSource) oneByOne(
	ctx context.Context, seq, end uint64, visit func(uint64, string, nats.Header) error,
) error {
	for seq < end {
		msg, err := s.log.Store.Next(ctx, ">", seq+1)
		if err != nil {
			return fmt.Errorf("%w: log from sequence %d: %w", commitlog.ErrLogUnavailable,
				seq+1, err)
		}
		if msg == nil {
			return nil
		}
		seq = msg.Sequence
		if err := visit(seq, msg.Subject, msg.Header); err != nil {
			return err
		}
	}
	return nil
}

// Messages implements Counter. A log without its Stream is taken for one that forgot nothing.
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
