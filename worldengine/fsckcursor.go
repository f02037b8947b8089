package worldengine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// logPosition is the place of a derived message: its log message, and its part of what is derived
// from that one.
type logPosition struct {
	seq  uint64
	part int
}

func (p logPosition) before(other logPosition) bool {
	return p.seq < other.seq || p.seq == other.seq && p.part < other.part
}

// fsckMessage is a stored message.
type fsckMessage struct {
	jetstream.Msg
	seq    uint64
	stored time.Time
	// at is the position that a derived message names; placed says that it names one.
	at     logPosition
	placed bool
	// town is the town's id of a log message, once that was read.
	town string
}

func newFsckMessage(msg jetstream.Msg, seq uint64, stored time.Time) *fsckMessage {
	m := &fsckMessage{Msg: msg, seq: seq, stored: stored}
	logSeq, err := strconv.ParseUint(msg.Headers().Get(follow.LogSeqHeader), 10, 64)
	part, partErr := strconv.Atoi(msg.Headers().Get(follow.LogPartHeader))
	if err == nil && partErr == nil && logSeq > 0 && part >= 0 {
		m.at, m.placed = logPosition{logSeq, part}, true
	}
	return m
}

// fsckCursor reads a stream from its beginning, in its order, and can look ahead. It keeps no more
// than one batch of messages and what is looked ahead.
type fsckCursor struct {
	name     string
	stream   jetstream.Stream
	consumer jetstream.Consumer
	largest  int // the bytes of the largest message that there can be
	batch    []*fsckMessage
	ahead    []*fsckMessage
	last     uint64 // the sequence of the last message that was fetched
	expected uint64 // the consumer's number of the next one
	pending  uint64 // how many the server has behind it
}

// Bounds of a batch, and how often one that breaks off is asked for again.
const (
	fsckBatch      = 512
	fsckBatchBytes = 8 << 20
	fsckTries      = 5
)

// openFsckCursor makes a cursor; largest is the largest message that there can be.
func openFsckCursor(ctx context.Context, stream jetstream.Stream, largest int64) (*fsckCursor, error) {
	c := &fsckCursor{name: stream.CachedInfo().Config.Name, stream: stream, largest: int(largest)}
	return c, c.restart(ctx)
}

// restart makes the consumer anew, behind the last message that was fetched.
func (c *fsckCursor) restart(ctx context.Context) error {
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

func (c *fsckCursor) broken(err error) error {
	return fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, c.name, err)
}

// close gives the consumer back.
func (c *fsckCursor) close(ctx context.Context) {
	_ = c.stream.DeleteConsumer(ctx, c.consumer.CachedInfo().Name) // it would end by itself
}

// peek returns the message n behind the next one without taking it, or nil where the stream has no
// more now.
func (c *fsckCursor) peek(ctx context.Context, n int) (*fsckMessage, error) {
	for len(c.ahead) <= n {
		m, err := c.read(ctx)
		if m == nil || err != nil {
			return nil, err
		}
		c.ahead = append(c.ahead, m)
	}
	return c.ahead[n], nil
}

// glance is peek without asking the server whether anything has come since.
func (c *fsckCursor) glance(ctx context.Context) (*fsckMessage, error) {
	if len(c.ahead) == 0 && len(c.batch) == 0 && c.pending == 0 {
		return nil, nil
	}
	return c.peek(ctx, 0)
}

// take moves on over the message that peek(0) gave.
func (c *fsckCursor) take() { c.ahead = append(c.ahead[:0], c.ahead[1:]...) }

// next takes and returns the next message, or nil where the stream has no more now.
func (c *fsckCursor) next(ctx context.Context) (*fsckMessage, error) {
	m, err := c.peek(ctx, 0)
	if m != nil {
		c.take()
	}
	return m, err
}

func (c *fsckCursor) read(ctx context.Context) (*fsckMessage, error) {
	for try := 0; len(c.batch) == 0; {
		if c.pending == 0 {
			if more, err := nextStored(ctx, c.stream, ">", c.last+1); more == nil || err != nil {
				return nil, err
			}
		}
		err := c.fetch(ctx)
		if err == nil && len(c.batch) > 0 {
			break
		}
		if err == nil {
			// The server counts what was changed on its disk, and delivers neither that nor, before it has
			// looked through the block, what is behind it.
			more, err := nextStored(ctx, c.stream, ">", c.last+1)
			if more == nil || err != nil {
				return nil, err
			}
			c.last = more.seq - 1
		}
		if try++; try == fsckTries || ctx.Err() != nil {
			return nil, c.broken(errors.Join(err, ctx.Err()))
		}
		if err := c.restart(ctx); err != nil {
			return nil, err
		}
	}
	m := c.batch[0]
	c.batch = c.batch[1:]
	return m, nil
}

// fetch asks for the next batch. What it counts on may be gone by then, so it may get less.
func (c *fsckCursor) fetch(ctx context.Context) error {
	batch, err := c.consumer.Fetch(int(min(max(c.pending, 1), fsckBatch)),
		jetstream.FetchMaxBytes(max(fsckBatchBytes, 2*c.largest)), jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	c.batch = make([]*fsckMessage, 0, fsckBatch)
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil || meta.Sequence.Consumer != c.expected {
			return errors.Join(errFsckGap, err, batch.Error())
		}
		c.expected++
		c.last, c.pending = meta.Sequence.Stream, meta.NumPending
		c.batch = append(c.batch, newFsckMessage(msg, c.last, meta.Timestamp))
	}
	return batch.Error()
}

// errFsckGap says that a batch was not delivered whole.
var errFsckGap = errors.New("worldengine: messages were lost on their way")

// stored returns the message at a sequence of a stream, or nil where there is none.
func stored(ctx context.Context, stream jetstream.Stream, seq uint64) (*fsckMessage, error) {
	raw, err := stream.GetMsg(ctx, seq)
	return readStored(stream, raw, err)
}

// lastStored returns the last message of a subject, or nil where there is none.
func lastStored(ctx context.Context, stream jetstream.Stream, subject string) (*fsckMessage, error) {
	raw, err := stream.GetLastMsgForSubject(ctx, subject)
	return readStored(stream, raw, err)
}

// nextStored returns the first message of a subject at or behind a sequence, or nil where there is none.
func nextStored(ctx context.Context, stream jetstream.Stream, subject string, seq uint64) (*fsckMessage, error) {
	raw, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
	return readStored(stream, raw, err)
}

func readStored(stream jetstream.Stream, raw *jetstream.RawStreamMsg, err error) (*fsckMessage, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, stream.CachedInfo().Config.Name, err)
	}
	return newFsckMessage(follow.Stored(raw), raw.Sequence, raw.Time), nil
}
