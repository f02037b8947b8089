package worldengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// eachInactive is when the server forgets a consumer of each that nobody deleted.
const eachInactive = time.Minute

// each reads once what a consumer of the log has when it is made, in its order: config says which
// messages. The error is that of visit, or ErrLogUnavailable. The consumer is not an ordered one: that
// makes itself anew for each batch, and begins all but the first with all later messages, also where the
// last of each subject are asked for.
func each(
	ctx context.Context, log jetstream.Stream, config jetstream.ConsumerConfig,
	visit func(msg jetstream.Msg, seq uint64) error,
) error {
	config.HeadersOnly, config.AckPolicy = true, jetstream.AckNonePolicy
	config.MemoryStorage, config.Replicas, config.InactiveThreshold = true, 1, eachInactive
	consumer, err := log.CreateConsumer(ctx, config)
	if err != nil {
		return fmt.Errorf("%w: consumer of the log: %w", ErrLogUnavailable, err)
	}
	defer follow.Release(log, consumer)
	pending, read, last := consumer.CachedInfo().NumPending, uint64(0), uint64(0)
	for read < pending {
		batch, err := consumer.Fetch(int(min(pending-read, 1000)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return fmt.Errorf("%w: messages of the log: %w", ErrLogUnavailable, err)
		}
		before := read
		for msg := range batch.Messages() {
			read++
			meta, err := msg.Metadata()
			if err != nil {
				return fmt.Errorf("worldengine: a log message without metadata: %w", err)
			}
			if meta.Sequence.Consumer != read {
				return fmt.Errorf("%w: the messages of the log have a gap", ErrLogUnavailable)
			}
			last = meta.Sequence.Stream
			if err := visit(msg, last); err != nil {
				return err
			}
		}
		if read > before {
			continue
		}
		// The server counts what is damaged, and does not deliver it.
		more, err := hasMore(ctx, log, last, config.FilterSubject)
		if err != nil || !more {
			return err
		}
		return fmt.Errorf("%w: the messages of the log break off: %w", ErrLogUnavailable,
			cmp.Or(batch.Error(), nats.ErrTimeout))
	}
	return nil
}

// hasMore says whether a stream can deliver a message behind a sequence, of a subject or with "" of any.
func hasMore(ctx context.Context, stream jetstream.Stream, last uint64, subject string) (bool, error) {
	_, err := stream.GetMsg(ctx, last+1, jetstream.WithGetMsgSubject(cmp.Or(subject, ">")))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, stream.CachedInfo().Config.Name, err)
	}
	return true, nil
}
