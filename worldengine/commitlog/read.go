package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Get returns the message at a sequence of a stream, Next the first message of a subject at or
// behind a sequence, and Last the last message of a subject; nil if there is none. A message whose
// headers cannot be decoded has none, as in a consumer. Errors are JetStream's.
func Get(
	ctx context.Context, stream jetstream.Stream, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetMsg(ctx, seq)
	return decoded(ctx, stream, msg, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
	})
}

// Next is described with Get.
func Next(
	ctx context.Context, stream jetstream.Stream, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
	return decoded(ctx, stream, msg, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1),
		FilterSubject: subject,
	})
}

// Last is described with Get.
func Last(
	ctx context.Context, stream jetstream.Stream, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	return decoded(ctx, stream, msg, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: subject,
	})
}

// LastOrUnreadable is Last, but returns ErrUnreadable if the stream counts a message of the subject
// and does not deliver it.
func LastOrUnreadable(
	ctx context.Context, stream jetstream.Stream, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := Last(ctx, stream, subject)
	if msg != nil || err != nil {
		return msg, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil || len(info.State.Subjects) == 0 {
		return nil, err
	}
	// It has not just come.
	if msg, err = Last(ctx, stream, subject); msg == nil && err == nil {
		err = ErrUnreadable
	}
	return msg, err
}

// ErrUnreadable means that a stream counts a message that it cannot deliver. Run fsck.
var ErrUnreadable = errors.New("worldengine: the last message of the subject was changed on the " +
	"disk of NATS")

// decoded returns the answer to a request for a message. If the client cannot decode the headers of
// the message, it is read by a consumer.
func decoded(
	ctx context.Context, stream jetstream.Stream, msg *jetstream.RawStreamMsg, err error,
	config jetstream.ConsumerConfig,
) (*jetstream.RawStreamMsg, error) {
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case isUndecodable(err):
		return consumeFirst(ctx, stream, err, config)
	}
	return msg, err
}

// isUndecodable reports whether a message's headers cannot be decoded. On direct reads the client
// has no error of its own for that: the answer lacks headers.
func isUndecodable(err error) bool {
	return errors.Is(err, nats.ErrBadHeaderMsg) ||
		err != nil && strings.Contains(err.Error(), "response should have headers")
}

// consumeFirst returns the first message of a consumer, or the given error if there is none.
func consumeFirst(
	ctx context.Context, stream jetstream.Stream, reason error, config jetstream.ConsumerConfig,
) (*jetstream.RawStreamMsg, error) {
	const wait = 2 * time.Second // for a message that NATS has just found
	consumer, err := createConsumer(ctx, stream, config)
	if err != nil {
		return nil, err
	}
	defer Release(stream, consumer)
	batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(wait))
	if err != nil {
		return nil, err
	}
	msg, found := <-batch.Messages()
	if !found {
		return nil, errors.Join(reason, batch.Error())
	}
	raw, _, err := Delivered(msg)
	return raw, err
}

// createConsumer makes a consumer that reads a stream once.
func createConsumer(
	ctx context.Context, stream jetstream.Stream, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	config.InactiveThreshold = time.Minute // if its reader ends without deleting it
	return stream.CreateConsumer(ctx, config)
}

// Release deletes a consumer that has read a stream once, which its Stop does not.
func Release(stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if info := consumer.CachedInfo(); info != nil {
		_ = stream.DeleteConsumer(ctx, info.Name) // else the server does
	}
}

// Heartbeat is the interval at which NATS confirms that it still serves an idle reader, which asks
// anew after two that fail to come. In a cluster the first request to a new consumer may get lost,
// and a consumer goes with its node.
const Heartbeat = 500 * time.Millisecond

// LastSequence returns the sequence of the last message of a subject, which need not be readable.
func LastSequence(ctx context.Context, stream jetstream.Stream, subject string) (uint64, error) {
	// A consumer that begins with the last message stands before it, though it cannot be delivered.
	consumer, err := createConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverLastPolicy,
	})
	if err != nil {
		return 0, err
	}
	defer Release(stream, consumer)
	return consumer.CachedInfo().Delivered.Stream + 1, nil
}

// Delivered returns a consumer's message as its stream stores it, and its number in the consumer.
func Delivered(msg jetstream.Msg) (*jetstream.RawStreamMsg, uint64, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("worldengine: a message without metadata: %w", err)
	}
	return &jetstream.RawStreamMsg{
		Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(),
		Data: msg.Data(), Time: meta.Timestamp,
	}, meta.Sequence.Consumer, nil
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
