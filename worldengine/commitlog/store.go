package commitlog

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Store reads and writes the stream of a log message by message. Its errors are JetStream's. It is
// safe for concurrent use.
type Store interface {
	// Publish stores a message, if the guards in its headers hold.
	Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error)
	// At returns the message at a sequence, Last the last message of a subject, and Next the first
	// message of a subject at or after a sequence; nil if there is none.
	At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error)
	Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
	Next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error)
	// End returns the sequence of the last message on any subject.
	End(ctx context.Context) (uint64, error)
}

// StreamStore is a Store on a JetStream stream.
type StreamStore struct {
	JetStream jetstream.JetStream
	Stream    jetstream.Stream
}

// NewStore returns the Store on the stream of a log: a GroupedStore if its server syncs each append
// to the disk.
func NewStore(js jetstream.JetStream, stream jetstream.Stream, grouped bool) Store {
	store := StreamStore{JetStream: js, Stream: stream}
	if grouped {
		return &GroupedStore{StreamStore: store}
	}
	return &store
}

// Publish implements Store.
func (s *StreamStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	return s.JetStream.PublishMsg(ctx, msg)
}

// At implements Store.
func (s *StreamStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return Get(ctx, s.Stream, seq)
}

// Last implements Store. It returns ErrUnreadable for a message that NATS cannot deliver.
func (s *StreamStore) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return LastOrUnreadable(ctx, s.Stream, subject)
}

// Next implements Store.
func (s *StreamStore) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	return Next(ctx, s.Stream, subject, from)
}

// End implements Store.
func (s *StreamStore) End(ctx context.Context) (uint64, error) {
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}
