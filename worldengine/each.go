package worldengine

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// each reads once what a consumer of the log has when it is made, in its order. The error is that of
// visit, or ErrLogUnavailable.
func each(
	ctx context.Context, log jetstream.Stream, config jetstream.OrderedConsumerConfig, visit func(jetstream.Msg) error,
) error {
	consumer, err := log.OrderedConsumer(ctx, config)
	if err != nil {
		return fmt.Errorf("%w: consumer of the log: %w", ErrLogUnavailable, err)
	}
	defer follow.Release(log, consumer)
	pending, read := consumer.CachedInfo().NumPending, uint64(0)
	for read < pending {
		batch, err := consumer.Fetch(int(min(pending-read, 1000)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return fmt.Errorf("%w: messages of the log: %w", ErrLogUnavailable, err)
		}
		before := read
		for msg := range batch.Messages() {
			read++
			if err := visit(msg); err != nil {
				return err
			}
		}
		if read == before {
			return fmt.Errorf("%w: the messages of the log break off: %w", ErrLogUnavailable, batch.Error())
		}
	}
	return nil
}
