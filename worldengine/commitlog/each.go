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

// DefaultFetchWait is how long a reader in bulk waits for messages that NATS counts and does not
// deliver, because they were changed on its disk, before it reads what is behind them one by one.
const DefaultFetchWait = 2 * time.Second

// EachInactive is how long the server keeps a consumer of Each whose reader ended without deleting
// it.
const EachInactive = time.Minute

// Each reads once what a consumer of the log has when it is made: config says which messages. What
// was changed on the disk of NATS is left out; behind that the last messages of subjects come in
// another order, and those that came meanwhile are visited too. The error is that of visit, or
// ErrLogUnavailable. The consumer is not an ordered one: that makes itself anew for each batch, and
// begins all but the first with all later messages, also where the last of each subject are asked
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
		// The server counts what was changed on its disk, and delivers neither that nor, before it
		// has looked through the block, what is behind it.
		if config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy {
			return eachLastBehind(ctx, log, filters(config), last, visit)
		}
		return eachBehind(ctx, log, filters(config), last, pending-read, visit)
	}
	return nil
}

// eachLastBehind reads, one by one, the last messages of the subjects of some filters that are behind
// a sequence. One that came while each was reading is visited again.
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

// eachBehind reads, one by one, at most so many messages of some filters behind a sequence.
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

// filters returns the subjects that a consumer is to have.
func filters(config jetstream.ConsumerConfig) []string {
	if len(config.FilterSubjects) > 0 {
		return config.FilterSubjects
	}
	return []string{cmp.Or(config.FilterSubject, ">")}
}
