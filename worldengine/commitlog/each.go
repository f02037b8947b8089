package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultFetchWait is a bulk reader's wait for messages that NATS counts but does not deliver,
// since they were changed on its disk. Then it reads the message behind them by its sequence.
const DefaultFetchWait = 2 * time.Second

// Bounds of a fetch, and the tries in a row that may bring nothing.
const (
	fetchMessages = 1000
	fetchBodies   = 512
	fetchBytes    = 8 << 20
	fetchTries    = 5
)

// Each reads once, without bodies, the messages that a stream has now; config selects them. It omits
// messages that were changed on the disk of NATS. Behind one, the last messages of subjects come in
// another order, and messages that came meanwhile are visited too. The error is visit's, or
// ErrLogUnavailable.
func Each(
	ctx context.Context, stream jetstream.Stream, config jetstream.ConsumerConfig,
	visit func(msg *jetstream.RawStreamMsg) error,
) error {
	return each(ctx, stream, DefaultFetchWait, config, visit)
}

// each is Each with another wait than DefaultFetchWait.
func each(
	ctx context.Context, stream jetstream.Stream, wait time.Duration,
	config jetstream.ConsumerConfig, visit func(msg *jetstream.RawStreamMsg) error,
) error {
	config.HeadersOnly = true
	r := &reading{stream: stream, config: config, visit: visit, most: fetchMessages,
		options: []jetstream.FetchOpt{jetstream.FetchMaxWait(wait)}}
	return r.all(ctx)
}

// EachWhole is Each for all messages of a stream, with their bodies, of which the largest has so
// many bytes; wait is in place of DefaultFetchWait.
func EachWhole(
	ctx context.Context, stream jetstream.Stream, largest int64, wait time.Duration,
	visit func(msg *jetstream.RawStreamMsg) error,
) error {
	r := &reading{stream: stream, visit: visit, most: fetchBodies, options: []jetstream.FetchOpt{
		jetstream.FetchMaxWait(wait), jetstream.FetchMaxBytes(max(fetchBytes, 2*int(largest)))}}
	return r.all(ctx)
}

// reading reads messages of a stream once. Its consumers are not ordered ones: such a consumer is
// remade for each batch, and begins all but the first with all later messages, even if the last of
// each subject are asked for.
type reading struct {
	stream  jetstream.Stream
	config  jetstream.ConsumerConfig
	options []jetstream.FetchOpt
	most    int // messages of a fetch
	visit   func(msg *jetstream.RawStreamMsg) error
	last    uint64 // the sequence of the last message that was read
	failed  error  // of visit
}

// errGap means that a batch was not delivered whole.
var errGap = errors.New("messages were lost on their way")

// all reads all messages.
func (r *reading) all(ctx context.Context) error {
	lasts := r.config.DeliverPolicy == jetstream.DeliverLastPerSubjectPolicy
	end := uint64(0)
	if !lasts {
		info, err := r.stream.Info(ctx)
		if err != nil {
			return r.broken(err)
		}
		end = info.State.LastSeq
	}
	r.last = max(r.config.OptStartSeq, 1) - 1
	for try := 1; ; try++ {
		before := r.last
		whole, err := r.consume(ctx)
		switch {
		case r.failed != nil:
			return r.failed
		case err != nil && (lasts || try >= fetchTries || ctx.Err() != nil):
			return r.broken(errors.Join(err, ctx.Err()))
		case lasts && !whole:
			return r.lastBehind(ctx)
		case err == nil && r.last >= end:
			return nil
		case err == nil:
			// NATS delivers neither messages that were changed on its disk nor, until it has
			// searched their block, those behind them; and a cluster's consumer may be at a replica
			// that lags. The leader has them.
			if found, err := r.next(ctx); !found || err != nil {
				return err
			}
		}
		if r.last > before {
			try = 0
		}
		r.config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		r.config.OptStartSeq = r.last + 1
	}
}

func (r *reading) broken(err error) error {
	return fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, r.stream.CachedInfo().Config.Name, err)
}

// consume reads the messages of a new consumer. It reports whether all that it counts came.
func (r *reading) consume(ctx context.Context) (whole bool, err error) {
	consumer, err := createConsumer(ctx, r.stream, r.config)
	if err != nil {
		return false, err
	}
	defer Release(r.stream, consumer)
	for read, pending := uint64(0), consumer.CachedInfo().NumPending; read < pending; {
		batch, err := consumer.Fetch(int(min(pending-read, uint64(r.most))), r.options...)
		if err != nil {
			return false, err
		}
		before := read
		for delivered := range batch.Messages() {
			msg, number, err := Delivered(delivered)
			if err != nil {
				return false, err
			}
			if read++; number != read {
				return false, errGap
			}
			r.last = msg.Sequence
			if r.failed = r.visit(msg); r.failed != nil {
				return false, nil
			}
		}
		if read == before {
			return false, batch.Error()
		}
	}
	return true, nil
}

// next reads the first message behind the last one by its sequence, and reports whether there is
// one.
func (r *reading) next(ctx context.Context) (found bool, err error) {
	var first *jetstream.RawStreamMsg
	for _, filter := range r.filters() {
		msg, err := Next(ctx, r.stream, filter, r.last+1)
		if err != nil {
			return false, r.broken(err)
		}
		if msg != nil && (first == nil || msg.Sequence < first.Sequence) {
			first = msg
		}
	}
	if first == nil {
		return false, nil
	}
	r.last = first.Sequence
	return true, r.visit(first)
}

// lastBehind reads the last messages, behind the last one that was read, of the filters' subjects
// one by one. It visits a subject again if a message came meanwhile.
func (r *reading) lastBehind(ctx context.Context) error {
	subjects, err := SubjectsOf(ctx, r.stream, r.filters()...)
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		msg, err := Last(ctx, r.stream, subject)
		if err != nil {
			return r.broken(err)
		}
		if msg == nil || msg.Sequence <= r.last {
			continue
		}
		if err := r.visit(msg); err != nil {
			return err
		}
	}
	return nil
}

// filters returns the subjects to read.
func (r *reading) filters() []string {
	if len(r.config.FilterSubjects) > 0 {
		return r.config.FilterSubjects
	}
	return []string{cmp.Or(r.config.FilterSubject, ">")}
}
