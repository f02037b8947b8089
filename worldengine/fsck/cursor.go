package fsck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
)

// cursor reads a stream from its beginning, in order. It keeps at most one batch of messages.
type cursor struct {
	name     string
	stream   jetstream.Stream
	consumer jetstream.Consumer
	largest  int           // the bytes of the largest message that there can be
	wait     time.Duration // for what the server counts and does not deliver
	batch    []*commitlog.Message
	last     uint64 // the sequence of the last message that was fetched
	expected uint64 // the consumer's number of the next one
	pending  uint64 // how many the server has behind it
}

// Bounds of a batch, and of its retries.
const (
	batchSize  = 512
	batchBytes = 8 << 20
	fetchTries = 5
)

// openCursor makes a cursor. largest is the largest possible message; wait bounds the wait for
// messages that the server counts and does not deliver.
func openCursor(
	ctx context.Context, stream jetstream.Stream, largest int64, wait time.Duration,
) (*cursor, error) {
	c := &cursor{
		name: stream.CachedInfo().Config.Name, stream: stream, largest: int(largest), wait: wait,
	}
	return c, c.restart(ctx)
}

// restart makes a new consumer behind the last fetched message.
func (c *cursor) restart(ctx context.Context) error {
	var err error
	c.consumer, err = c.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: c.last + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: 5 * time.Minute,
	})
	if err != nil {
		return c.broken(err)
	}
	c.expected, c.pending = 1, c.consumer.CachedInfo().NumPending
	return nil
}

func (c *cursor) broken(err error) error {
	return fmt.Errorf("%w: stream %s: %w", commitlog.ErrLogUnavailable, c.name, err)
}

// close deletes the consumer, which would end by itself.
func (c *cursor) close(ctx context.Context) {
	_ = c.stream.DeleteConsumer(ctx, c.consumer.CachedInfo().Name)
}

// next returns the next message, or nil if the stream has no more now.
func (c *cursor) next(ctx context.Context) (*commitlog.Message, error) {
	for try := 0; len(c.batch) == 0; {
		if c.pending == 0 {
			more, err := commitlog.NextStored(ctx, c.stream, ">", c.last+1)
			if more == nil || err != nil {
				return nil, err
			}
		}
		err := c.fetch(ctx)
		if err == nil && len(c.batch) > 0 {
			break
		}
		switch {
		case err == nil:
			// The consumer counts messages that it does not deliver. NATS delivers neither those
			// that were changed on its disk nor, until it has searched the block, those behind
			// them; and a cluster's consumer may be at a replica that lacks them. The leader has
			// them.
			more, err := commitlog.NextStored(ctx, c.stream, ">", c.last+1)
			if more == nil || err != nil {
				return nil, err
			}
			c.batch, c.last = append(c.batch, more), more.Seq
		case try+1 == fetchTries || ctx.Err() != nil:
			return nil, c.broken(errors.Join(err, ctx.Err()))
		default:
			try++
		}
		c.close(ctx)
		if err := c.restart(ctx); err != nil {
			return nil, err
		}
	}
	m := c.batch[0]
	c.batch = c.batch[1:]
	return m, nil
}

// fetch fetches the next batch, which may be smaller if counted messages are gone.
func (c *cursor) fetch(ctx context.Context) error {
	batch, err := c.consumer.Fetch(int(min(max(c.pending, 1), batchSize)),
		jetstream.FetchMaxBytes(max(batchBytes, 2*c.largest)), jetstream.FetchMaxWait(c.wait))
	if err != nil {
		return err
	}
	c.batch = make([]*commitlog.Message, 0, batchSize)
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil || meta.Sequence.Consumer != c.expected {
			return errors.Join(errGap, err, batch.Error())
		}
		c.expected++
		c.last, c.pending = meta.Sequence.Stream, meta.NumPending
		c.batch = append(c.batch, commitlog.NewMessage(msg, c.last, meta.Timestamp))
	}
	return batch.Error()
}

// errGap means that a batch was not delivered whole.
var errGap = errors.New("worldengine: messages were lost on their way")
