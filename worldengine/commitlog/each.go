package commitlog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultFetchWait is a bulk reader's wait for messages that NATS counts but does not deliver,
// since they were changed on its disk. Then it reads the messages behind them one by one.
const DefaultFetchWait = 2 * time.Second

// EachInactive is how long the server keeps a consumer of Each whose reader ended without deleting
// it.
const EachInactive = time.Minute

// Each reads once the messages that a consumer of the log has when it is made; config selects them.
// It omits messages that were changed on the disk of NATS; behind one, the last messages of
// subjects come in another order, and messages that came meanwhile are visited too. The error is
// visit's, or ErrLogUnavailable. The consumer is not an ordered one: that is remade for each batch,
// and begins all but the first with all later messages, even if the last of each subject are asked
// for.
func Each(
	ctx context.Context, log jetstream.Stream, config jetstream.ConsumerConfig,
	visit func(msg jetstream.Msg, seq uint64) error,
) error {
	return each(ctx, log, DefaultFetchWait, config, visit)
}

// each is Each with another wait than DefaultFetchWait.
func each(
	ctx context.Context, log jetstream.Stream, wait time.Duration, config jetstream.ConsumerConfig,
	visit func(msg jetstream.Msg, seq uint64) error,
) error {
	config.HeadersOnly, config.AckPolicy = true, jetstream.AckNonePolicy
	config.MemoryStorage, config.Replicas, config.InactiveThreshold = true, 1, EachInactive
	consumer, err := log.CreateConsumer(ctx, config)
	if err != nil {
		return fmt.Errorf("%w: consumer of the log: %w", ErrLogUnavailable, err)
	}
	defer Release(log, consumer)
	pending, read, last := consumer.CachedInfo().NumPending, uint64(0), uint64(0)
	for read < pending {
		batch, err := consumer.Fetch(int(min(pending-read, 1000)), jetstream.FetchMaxWait(wait))
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
		// The server counts messages that were changed on its disk, but delivers neither them nor,
		// until it has searched the block, the messages behind them.
		if config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy {
			return eachLastBehind(ctx, log, filters(config), last, visit)
		}
		return eachBehind(ctx, log, filters(config), last, pending-read, visit)
	}
	return nil
}

// eachLastBehind reads the last messages, behind a sequence, of the filters' subjects one by one.
// It visits a subject again if a message came meanwhile.
func eachLastBehind(
	ctx context.Context, log jetstream.Stream, filters []string, last uint64,
	visit func(msg jetstream.Msg, seq uint64) error,
) error {
	subjects := map[string]uint64{}
	for _, filter := range filters {
		of, err := SubjectsOf(ctx, log, filter)
		if err != nil {
			return err
		}
		maps.Copy(subjects, of)
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		msg, err := LastStored(ctx, log, subject)
		if err != nil {
			return err
		}
		if msg == nil || msg.Seq <= last {
			continue
		}
		if err := visit(msg, msg.Seq); err != nil {
			return err
		}
	}
	return nil
}

// eachBehind reads some filters' messages behind a sequence, one by one and at most so many.
func eachBehind(
	ctx context.Context, log jetstream.Stream, filters []string, last, most uint64,
	visit func(msg jetstream.Msg, seq uint64) error,
) error {
	for ; most > 0; most-- {
		first, err := NextStoredOf(ctx, log, filters, last+1)
		if first == nil || err != nil {
			return err
		}
		last = first.Seq
		if err := visit(first, last); err != nil {
			return err
		}
	}
	return nil
}

// filters returns a consumer's subjects.
func filters(config jetstream.ConsumerConfig) []string {
	if len(config.FilterSubjects) > 0 {
		return config.FilterSubjects
	}
	return []string{cmp.Or(config.FilterSubject, ">")}
}
