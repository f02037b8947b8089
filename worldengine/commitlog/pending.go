package commitlog

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// PendingIndex holds hints to the runs that wait in a server: the stream WORLD_<world>_PENDING, which
// an engine follows in case another engine dies. It has one message for each server and town that
// runs wait for, stored before these are recorded: the last message of each run decides whether it
// waits. An entry that is not needed any more is removed.
type PendingIndex struct {
	world  string
	js     jetstream.JetStream
	Stream jetstream.Stream
}

// NewPendingIndex returns the index of a world. With a nil stream entries can only be put.
func NewPendingIndex(world string, js jetstream.JetStream, stream jetstream.Stream) *PendingIndex {
	return &PendingIndex{world: world, js: js, Stream: stream}
}

// PendingIndexConfig returns the configuration of the stream of a world's pending index.
func PendingIndexConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              wire.PendingStream(world),
		Description:       "Where runs wait in " + world + ": hints for the recovery of an engine",
		Subjects:          []string{wire.WaitingSubject(world, "*", "*")},
		MaxMsgsPerSubject: 1, // the last one of a town will do
		AllowDirect:       replicas <= 1,
		Replicas:          max(replicas, 1),
	}
}

// WaitingRuns is an entry for runs that wait for a town.
type WaitingRuns struct {
	TownID string   `json:"townId"`
	Runs   []string `json:"runs"`
}

// PutWaiting puts the entry of the runs of a town that wait in a server in the place of the one
// before. The error is ErrLogUnavailable.
func (m *PendingIndex) PutWaiting(ctx context.Context, server string, w WaitingRuns) error {
	data, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("worldengine: the entry of waiting runs: %w", err)
	}
	return m.put(ctx, wire.WaitingSubject(m.world, wire.TownToken(w.TownID), server), data)
}

func (m *PendingIndex) put(ctx context.Context, subject string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	if _, err := m.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}); err != nil {
		return fmt.Errorf("%w: the entry of %s: %w", ErrLogUnavailable, subject, err)
	}
	return nil
}

// IndexEntry is an entry as a reader of the index gets it.
type IndexEntry struct {
	Subject string
	Seq     uint64
	Data    []byte
	// Age is how long the entry has been there, by the clocks of NATS and of this machine; never
	// negative.
	Age time.Duration
}

// Follow calls take for each entry on a subject, and for those to come, and tick in between, until
// ctx is done or NATS does not answer. Both are called from one goroutine.
func (m *PendingIndex) Follow(
	ctx context.Context, subject string, every time.Duration, take func(IndexEntry), tick func(),
) error {
	consumer, err := m.Stream.OrderedConsumer(ctx,
		jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return fmt.Errorf("worldengine: consumer of the index: %w", err)
	}
	defer Release(m.Stream, consumer)
	messages, err := consumer.Messages(jetstream.PullHeartbeat(Heartbeat))
	if err != nil {
		return fmt.Errorf("worldengine: the index: %w", err)
	}
	defer messages.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrived := make(chan jetstream.Msg)
	go func() {
		for {
			msg, err := messages.Next(jetstream.NextContext(ctx))
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
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case msg := <-arrived:
			meta, err := msg.Metadata()
			if err != nil {
				return fmt.Errorf("worldengine: an entry of the index without metadata: %w", err)
			}
			take(IndexEntry{msg.Subject(), meta.Sequence.Stream, msg.Data(),
				max(time.Since(meta.Timestamp), 0)})
		case <-ticker.C:
			tick()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// IsLast reports whether the entry at a sequence is there and the last one of its subject. The
// error is ErrLogUnavailable.
func (m *PendingIndex) IsLast(ctx context.Context, subject string, seq uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	msg, err := orNil(m.Stream.GetLastMsgForSubject(ctx, subject))
	if err != nil {
		return false, fmt.Errorf("%w: the entry of %s: %w", ErrLogUnavailable, subject, err)
	}
	return msg != nil && msg.Sequence == seq, nil
}

// Remove removes an entry. Any server may have removed it before, or put a later one in its place.
func (m *PendingIndex) Remove(ctx context.Context, seq uint64) { _ = m.Stream.DeleteMsg(ctx, seq) }
