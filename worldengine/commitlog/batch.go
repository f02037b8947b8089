package commitlog

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a batch. Up to fewMessages are read one by one; to read more, a consumer is faster.
const (
	fewMessages = 16
	batchBytes  = 1 << 20
)

// NextBatch returns up to most messages of a stream from a sequence on, in order. It returns fewer
// if they are large or one was changed on the disk, and none after the last message. Of a replicated
// stream it reads one message, since a cluster takes long to make a consumer. The error is
// ErrLogUnavailable.
func NextBatch(
	ctx context.Context, stream jetstream.Stream, seq uint64, most int,
) (messages []*jetstream.RawStreamMsg, err error) {
	if most > fewMessages && stream.CachedInfo().Config.Replicas <= 1 {
		r := newReading(stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
		}, jetstream.FetchMaxBytes(batchBytes))
		bytes := 0
		for msg := range r.messages(ctx, uint64(most)) {
			messages, bytes = append(messages, msg), bytes+len(msg.Data)
			if len(messages) == most || bytes > batchBytes {
				break
			}
		}
		if len(messages) > 0 {
			return messages, nil
		}
	}
	msg, err := StreamStore{Stream: stream}.Next(ctx, ">", seq)
	if err != nil {
		return nil, fmt.Errorf("%w: stream %s from sequence %d: %w", ErrLogUnavailable,
			stream.CachedInfo().Config.Name, seq, err)
	}
	if msg != nil {
		messages = append(messages, msg)
	}
	return messages, nil
}
