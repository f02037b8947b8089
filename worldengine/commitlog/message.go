package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Message is a stored message of a stream.
type Message struct {
	jetstream.Msg
	Seq    uint64
	Stored time.Time
	// Town is the town's id of a log message, once it was read.
	Town string
}

// NewMessage returns a message that a stream stored at seq, at a time.
func NewMessage(msg jetstream.Msg, seq uint64, stored time.Time) *Message {
	return &Message{Msg: msg, Seq: seq, Stored: stored}
}

// Stored returns the message at a sequence of a stream, or nil if there is none.
func Stored(ctx context.Context, stream jetstream.Stream, seq uint64) (*Message, error) {
	raw, err := Get(ctx, stream, seq)
	return readStored(stream, raw, err)
}

// LastStored returns the last message of a subject, or nil if there is none.
func LastStored(ctx context.Context, stream jetstream.Stream, subject string) (*Message, error) {
	raw, err := Last(ctx, stream, subject)
	return readStored(stream, raw, err)
}

// NextStored returns the first message of a subject at or behind a sequence, or nil if there is
// none.
func NextStored(
	ctx context.Context, stream jetstream.Stream, subject string, seq uint64,
) (*Message, error) {
	raw, err := Next(ctx, stream, subject, seq)
	return readStored(stream, raw, err)
}

// NextStoredOf returns the first message of several subjects at or behind a sequence, or nil if
// there is none.
func NextStoredOf(
	ctx context.Context, stream jetstream.Stream, subjects []string, seq uint64,
) (first *Message, err error) {
	for _, subject := range subjects {
		msg, err := NextStored(ctx, stream, subject, seq)
		if err != nil {
			return nil, err
		}
		if msg != nil && (first == nil || msg.Seq < first.Seq) {
			first = msg
		}
	}
	return first, nil
}

func readStored(stream jetstream.Stream, raw *jetstream.RawStreamMsg, err error) (*Message, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable,
			stream.CachedInfo().Config.Name,
			err)
	}
	return NewMessage(Delivered(raw), raw.Sequence, raw.Time), nil
}

// subjectsTimeout bounds the time in which NATS lists a log's subjects: a million takes some 20 s.
const subjectsTimeout = 5 * time.Minute

// SubjectsOf returns the log's subjects that match filters, with their numbers of messages.
func SubjectsOf(
	ctx context.Context, log jetstream.Stream, filters ...string,
) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, subjectsTimeout) // in place of the client's 5 s
	defer cancel()
	subjects := map[string]uint64{}
	for _, filter := range filters {
		info, err := log.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, fmt.Errorf("%w: subjects of stream %s: %w", ErrLogUnavailable,
				log.CachedInfo().Config.Name, err)
		}
		maps.Copy(subjects, info.State.Subjects)
	}
	return subjects, nil
}

// LastOrUnreadable returns the last message of the matching subjects, or nil. It returns
// ErrUnreadable if the stream counts a message that NATS does not deliver, because it was changed
// on the disk.
func LastOrUnreadable(
	ctx context.Context, stream jetstream.Stream, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := orNil(Last(ctx, stream, subject))
	if msg != nil || err != nil {
		return msg, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil || len(info.State.Subjects) == 0 {
		return nil, err
	}
	// It has not just come.
	if msg, err = orNil(Last(ctx, stream, subject)); msg == nil && err == nil {
		err = ErrUnreadable
	}
	return msg, err
}

// ErrUnreadable means that a stream counts a message that it cannot deliver. Run fsck.
var ErrUnreadable = errors.New("worldengine: the last message of the subject was changed on the " +
	"disk of NATS")

// orNil returns nil for a message that does not exist.
func orNil(msg *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return msg, err
}
