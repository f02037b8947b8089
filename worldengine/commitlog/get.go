package commitlog

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Get returns the message at a sequence of a stream. Like Next and Last, it returns a message whose
// headers cannot be decoded without headers, as a consumer does, and jetstream.ErrMsgNotFound if
// there is no message.
func Get(
	ctx context.Context, stream jetstream.Stream, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetMsg(ctx, seq)
	if !IsUndecodable(err) {
		return msg, err
	}
	return consume(ctx, stream, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
	})
}

// Next returns the first message of a subject at or behind a sequence.
func Next(
	ctx context.Context, stream jetstream.Stream, subject string, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
	if !IsUndecodable(err) {
		return msg, err
	}
	return consume(ctx, stream, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(seq, 1),
		FilterSubject: subject,
	})
}

// Last returns the last message of a subject.
func Last(
	ctx context.Context, stream jetstream.Stream, subject string,
) (*jetstream.RawStreamMsg, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	if !IsUndecodable(err) {
		return msg, err
	}
	return consume(ctx, stream, err, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: subject,
	})
}

// IsUndecodable reports whether a message's headers cannot be decoded. On direct reads the client
// has no error of its own for that: the answer lacks headers.
func IsUndecodable(err error) bool {
	return errors.Is(err, nats.ErrBadHeaderMsg) ||
		err != nil && strings.Contains(err.Error(), "response should have headers")
}

// consumeWait bounds the wait for a message that NATS has just found.
const consumeWait = 2 * time.Second

// consume returns the first message of a consumer, or the given error if there is none.
func consume(
	ctx context.Context, stream jetstream.Stream, reason error, config jetstream.ConsumerConfig,
) (*jetstream.RawStreamMsg, error) {
	config.AckPolicy, config.MemoryStorage, config.Replicas = jetstream.AckNonePolicy, true, 1
	config.InactiveThreshold = inactiveThreshold
	consumer, err := stream.CreateConsumer(ctx, config)
	if err != nil {
		return nil, err
	}
	defer Release(stream, consumer)
	batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(consumeWait))
	if err != nil {
		return nil, err
	}
	msg, found := <-batch.Messages()
	if !found {
		return nil, errors.Join(reason, batch.Error())
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	return &jetstream.RawStreamMsg{
		Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(),
		Data: msg.Data(), Time: meta.Timestamp,
	}, nil
}

// inactiveThreshold is how long NATS keeps a consumer whose reader vanished.
const inactiveThreshold = 5 * time.Second

// Heartbeat is the interval at which NATS confirms that it still serves an idle reader, which asks
// anew after two that fail to come. In a cluster the first request to a new consumer may get lost,
// and a consumer goes with its node.
const Heartbeat = 500 * time.Millisecond

// Release deletes a consumer that read a stream once, which its Stop does not.
func Release(stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if info := consumer.CachedInfo(); info != nil {
		_ = stream.DeleteConsumer(ctx, info.Name) // else the server does, after inactiveThreshold
	}
}

// Delivered returns a message that was read by its sequence as one of a consumer. There is nothing
// to acknowledge.
func Delivered(raw *jetstream.RawStreamMsg) jetstream.Msg { return storedMsg{raw: raw} }

type storedMsg struct {
	jetstream.Msg
	raw *jetstream.RawStreamMsg
}

func (m storedMsg) Subject() string      { return m.raw.Subject }
func (m storedMsg) Headers() nats.Header { return m.raw.Header }
func (m storedMsg) Data() []byte         { return m.raw.Data }

func (m storedMsg) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair{Stream: m.raw.Sequence}, Timestamp: m.raw.Time,
	}, nil
}
