package worldengine

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// marks are where an engine looks for what is being applied when it starts, and when another instance
// dies: the stream WORLD_<world>_PENDING, one message for each command that is given away, stored
// before the commit that accepts it. A mark is a hint and no more: the last message of the town tells
// whether anything is pending, and a mark of a town where nothing is gets removed.
type marks struct {
	world  string
	js     jetstream.JetStream
	stream jetstream.Stream
}

func markConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              pendingStream(world),
		Description:       "Where commands are being applied in " + world + ": hints for the recovery of an engine",
		Subjects:          []string{pendingSubject(world, "*")},
		MaxMsgsPerSubject: 1, // the last one of a town will do
		AllowDirect:       replicas <= 1,
		Replicas:          max(replicas, 1),
	}
}

// put marks a town.
func (m *marks) put(ctx context.Context, townID string) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	msg := &nats.Msg{Subject: pendingSubject(m.world, TownToken(townID)), Data: []byte(townID)}
	if _, err := m.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("%w: the mark of a pending command: %w", ErrLogUnavailable, err)
	}
	return nil
}

// mark is a mark that was read.
type mark struct {
	seq uint64
	// When it was read, and when to look at the town, by the machine's monotonic clock: that of NATS may
	// be set.
	seen, due time.Time
}

// markAge is how long a mark is known at least before it is removed: the commit that it was stored for has come
// or failed by then.
const markAge = 2 * operationTimeout

// recover looks after the marked towns until ctx is done: what is pending there and nobody sees to, this
// instance does.
func (e *Engine) recover(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.followMarks(ctx); err != nil && ctx.Err() == nil {
			e.config.Logger.Warn("the marks of pending commands cannot be followed; will try again", "error", err)
			sleep(ctx, time.Second)
		}
	}
}

func (e *Engine) followMarks(ctx context.Context) error {
	consumer, err := e.marks.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("worldengine: consumer of the marks: %w", err)
	}
	defer follow.Release(e.marks.stream, consumer)
	messages, err := consumer.Messages(jetstream.PullHeartbeat(follow.Heartbeat))
	if err != nil {
		return fmt.Errorf("worldengine: marks: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan jetstream.Msg)
	go func() {
		for {
			msg, err := messages.Next()
			if err != nil {
				cancel(err)
				return
			}
			select {
			case arrived <- msg:
			case <-ctx.Done():
			}
		}
	}()
	defer messages.Stop()
	return e.lookAfter(ctx, arrived)
}

// lookAfter keeps the marks that arrive until their town has nothing pending.
func (e *Engine) lookAfter(ctx context.Context, arrived <-chan jetstream.Msg) error {
	known := map[string]mark{} // by town
	ticker := time.NewTicker(restPause)
	defer ticker.Stop()
	for {
		select {
		case msg := <-arrived:
			meta, err := msg.Metadata()
			if err != nil {
				return fmt.Errorf("worldengine: a mark without metadata: %w", err)
			}
			now := time.Now()
			age := min(max(now.Sub(meta.Timestamp), 0), e.config.Plugin.Resend)
			due := now.Add(e.config.Plugin.Resend - age)
			known[string(msg.Data())] = mark{seq: meta.Sequence.Stream, seen: now, due: due}
			if !now.Before(due) {
				e.lookAt(ctx, known)
			}
		case <-ticker.C:
			e.lookAt(ctx, known)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lookAt looks at the towns whose marks are due.
func (e *Engine) lookAt(ctx context.Context, known map[string]mark) {
	now := time.Now()
	for townID, m := range maps.Clone(known) {
		if now.Before(m.due) {
			continue
		}
		current, err := e.log.load(ctx, townID)
		if err == nil && current.pending != nil {
			err = e.seeInTurn(townID)
			m.due = now.Add(e.config.Plugin.Resend)
			known[townID] = m
		} else if err == nil && now.Before(m.seen.Add(markAge)) {
			m.due = m.seen.Add(markAge)
			known[townID] = m
		} else if err == nil {
			// Any instance may have removed it before, or a later mark.
			_ = e.marks.stream.DeleteMsg(ctx, m.seq)
			delete(known, townID)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Error("a pending command cannot be looked after", "town", townID, "error", err)
		}
	}
}

// seeInTurn sees to what is pending in a town, in the town's turn: whoever has just committed it in this
// instance sees to it first, with its client and as its own.
func (e *Engine) seeInTurn(townID string) error {
	return e.queues.submitFirst(townID, func(ctx context.Context) {
		current, err := e.log.load(ctx, townID)
		if err == nil && current.pending != nil {
			err = e.see(townID, current, nil)
		}
		if err != nil && ctx.Err() == nil {
			e.config.Logger.Error("a pending command cannot be looked after", "town", townID, "error", err)
		}
	})
}
