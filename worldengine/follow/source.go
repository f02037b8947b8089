package follow

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// source gives one try of a follower the messages of the log, in order: through a consumer of its
// own until it comes to where the tail is, and from the tail from then on.
type source struct {
	log  jetstream.Stream
	tail *Tail // nil where there is none
	tap  *tap  // nil as long as the tail is not near, or does not run

	consumer jetstream.Consumer // nil once the tail is reached
	messages jetstream.MessagesContext
	forget   func() bool // that messages end with the try
	seq      uint64      // of the last message that was given, or that need not be
	pending  uint64      // how many messages the consumer still has
}

// sourcePull is how many messages may be on their way to a follower that is behind the tail.
// Without it nats.go makes room for a million, 8 MB, at each start of a follower.
const sourcePull = 8192

// errLeft: the tail went on without the follower, or does not go on; the next try reads by itself.
var errLeft = errors.New("follow: the tail of the log was lost")

// openSource opens the log where config says. The position must have been read before, and the log
// checked: what the tail reads from now on is behind both.
func (f *Follower) openSource(
	ctx context.Context, config jetstream.OrderedConsumerConfig,
) (*source, error) {
	consumer, err := f.config.Log.OrderedConsumer(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("follow: consumer of the log: %w", err)
	}
	info := consumer.CachedInfo()
	s := &source{
		log: f.config.Log, tail: f.config.Tail, consumer: consumer,
		seq: info.Delivered.Stream, pending: info.NumPending,
	}
	s.messages, err = consumer.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(sourcePull, pullBytes(f.config.JetStream)),
		jetstream.PullHeartbeat(Heartbeat))
	if err != nil {
		s.close()
		return nil, fmt.Errorf("follow: messages of the log: %w", err)
	}
	// Next does not return while the log is gone, whatever its context; Stop ends it.
	s.forget = context.AfterFunc(ctx, s.messages.Stop)
	return s, nil
}

// next returns the next message, and its sequence.
func (s *source) next(ctx context.Context) (jetstream.Msg, uint64, error) {
	if s.tail != nil && s.tap == nil && s.pending <= tapWithin {
		s.tap = s.tail.tap()
	}
	if s.tap != nil && s.seq >= s.tap.behind {
		s.closeConsumer()
		return s.nextOfTail(ctx)
	}
	msg, err := s.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, 0, fmt.Errorf("follow: next message of the log: %w", err)
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("follow: a message of the log without metadata: %w", err)
	}
	s.seq, s.pending = meta.Sequence.Stream, meta.NumPending
	return msg, s.seq, nil
}

// nextOfTail leaves out what the consumer gave already.
func (s *source) nextOfTail(ctx context.Context) (jetstream.Msg, uint64, error) {
	for {
		select {
		case msg, ok := <-s.tap.messages:
			if !ok {
				return nil, 0, errLeft
			}
			s.tap.bytes.Add(-msg.size())
			if msg.seq > s.seq {
				s.seq = msg.seq
				return msg.Msg, msg.seq, nil
			}
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// ready reports whether next has a message without a wait, as far as that is known.
func (s *source) ready() bool { return s.consumer == nil && len(s.tap.messages) > 0 }

func (s *source) close() {
	if s.tap != nil {
		s.tail.leave(s.tap)
	}
	s.closeConsumer()
}

func (s *source) closeConsumer() {
	if s.consumer == nil {
		return
	}
	if s.messages != nil {
		s.forget()
		s.messages.Stop()
	}
	Release(s.log, s.consumer)
	s.consumer, s.messages, s.forget = nil, nil, nil
}
