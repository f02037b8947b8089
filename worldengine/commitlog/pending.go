package commitlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// PendingIndex holds hints to what an engine may leave behind when it dies: the stream
// WORLD_<world>_PENDING, which an engine reads when it starts, and follows in case another engine
// dies. It has one message for each town that a command is being applied to, stored before the
// commit that accepts its handoff: the last message of the town decides whether a command is
// pending. And it has one for each server and town that runs wait for, stored before these are
// recorded: the last message of each run decides whether it waits. And it has one for each town in
// which proposals wait for approval, which the town's last message decides too. An entry that is
// not needed any more is removed.
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
		Name: wire.PendingStream(world),
		Description: "Where commands are being applied and runs wait in " + world +
			": hints for the recovery of an engine",
		Subjects: []string{
			wire.PendingSubject(world, "*"), wire.AskedSubject(world, "*"),
			wire.WaitingSubject(world, "*", "*"),
		},
		MaxMsgsPerSubject: 1, // the last one of a town will do
		AllowDirect:       replicas <= 1,
		Replicas:          max(replicas, 1),
	}
}

// Put adds an entry for a town that a command is being applied to. The error is ErrLogUnavailable.
func (m *PendingIndex) Put(ctx context.Context, townID string) error {
	return m.put(ctx, wire.PendingSubject(m.world, wire.TownToken(townID)), []byte(townID))
}

// PutAsked adds an entry for a town in which a proposal waits for approval. The error is
// ErrLogUnavailable.
func (m *PendingIndex) PutAsked(ctx context.Context, townID string) error {
	return m.put(ctx, wire.AskedSubject(m.world, wire.TownToken(townID)), []byte(townID))
}

// EnsureAsked is PutAsked where renew is set, or where the index has no entry of the town.
func (m *PendingIndex) EnsureAsked(ctx context.Context, townID string, renew bool) error {
	if !renew {
		entry, err := LastStored(ctx, m.Stream, wire.AskedSubject(m.world, wire.TownToken(townID)))
		if err != nil || entry != nil {
			return err
		}
	}
	return m.PutAsked(ctx, townID)
}

// Asked calls visit for each entry of a town in which proposals may wait for approval, in the order
// of the subjects, until it returns an error. The error is visit's, or ErrLogUnavailable.
func (m *PendingIndex) Asked(
	ctx context.Context, visit func(townID string, entry *Message) error,
) error {
	subjects, err := SubjectsOf(ctx, m.Stream, wire.AskedSubject(m.world, "*"))
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		entry, err := LastStored(ctx, m.Stream, subject)
		if err == nil && entry != nil {
			err = visit(string(entry.Data()), entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AskedAge is the least age at which an entry of a town with nothing that waits for approval may be
// removed: the commit that it was stored for has come or failed by then.
const AskedAge = entryAge

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
	defer follow.Release(m.Stream, consumer)
	messages, err := consumer.Messages(jetstream.PullHeartbeat(follow.Heartbeat))
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
