package worldengine

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// logStore is what the engine needs of the stream that holds its log, message by message. Its errors
// are those of JetStream.
type logStore interface {
	// publish stores a message, if the guards in its headers hold.
	publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error)
	// at returns the message at a sequence, last the last one of a subject, and next the first one of a
	// subject at or after a sequence; nil where there is none.
	at(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error)
	last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
	next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error)
	// end returns the sequence of the last message of whatever subject.
	end(ctx context.Context) (uint64, error)
}

// streamStore is the logStore that is a stream.
type streamStore struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

func (s *streamStore) publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	return s.js.PublishMsg(ctx, msg)
}

func (s *streamStore) at(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return orNil(s.stream.GetMsg(ctx, seq))
}

func (s *streamStore) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return lastOrUnreadable(ctx, s.stream, subject)
}

// lastOrUnreadable returns the last message of a subject, or of the subjects that match one, and nil where
// there is none. Then it also asks whether the stream counts any: NATS says of one that was changed on its
// disk that it is not there, and errUnreadable is returned.
func lastOrUnreadable(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := orNil(stream.GetLastMsgForSubject(ctx, subject))
	if msg != nil || err != nil {
		return msg, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil || len(info.State.Subjects) == 0 {
		return nil, err
	}
	if msg, err = orNil(stream.GetLastMsgForSubject(ctx, subject)); msg == nil && err == nil { // it has not just come
		err = errUnreadable
	}
	return msg, err
}

// errUnreadable says that a stream counts a message that it cannot deliver.
var errUnreadable = errors.New("worldengine: the last message of the subject was changed on the disk of NATS")

func (s *streamStore) next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	return orNil(s.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject)))
}

func (s *streamStore) end(ctx context.Context) (uint64, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// orNil makes nil of a message that is not there.
func orNil(msg *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return msg, err
}
