package backup

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// BackupStreams returns the streams that a backup of a world has, as a server makes them, in the
// order in which they are to be copied from a world that is being served: what is derived
// before what tells why it may be incomplete, and the log, which everything follows, last. The
// pending index is not among them: Restore writes that anew.
func BackupStreams(
	world string, settings commitlog.Settings, replicas int,
) []jetstream.StreamConfig {
	receipts, events := commitlog.DerivedStreams(world, settings, replicas)
	return []jetstream.StreamConfig{
		receipts, events,
		alerts.DeadLetterConfig(world, replicas), alerts.AlertConfig(world, replicas),
		commitlog.LogStream(world, settings, replicas),
	}
}

// IndexPending makes the pending index of a restored world, an entry for each town whose last
// record says that a command is being applied, and returns how many there are; and one for each in
// which proposals wait for approval. In a backup the
// index could not agree with the log: an entry may be removed before it is copied, and its command
// end after the log was.
func IndexPending(ctx context.Context, nc *nats.Conn, world string, replicas int) (int, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	log, err := js.Stream(ctx, wire.LogStream(world))
	if err != nil {
		return 0, fmt.Errorf("worldengine: stream %s: %w", wire.LogStream(world), err)
	}
	stream, err := commitlog.OpenStream(ctx, js, commitlog.PendingIndexConfig(world, replicas),
		slog.Default())
	if err != nil {
		return 0, err
	}
	index, entries := commitlog.NewPendingIndex(world, js, stream), 0
	err = commitlog.Each(ctx, log, jetstream.ConsumerConfig{
		FilterSubject: wire.LogSubject(world, "*"),
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}, func(msg jetstream.Msg, seq uint64) error {
		if msg.Headers().Get(wire.AskedHeader) != "" {
			if err := indexAsked(ctx, log, index, seq); err != nil {
				return err
			}
		}
		if !commitlog.Kind(msg.Headers().Get(wire.KindHeader)).MayLeavePending() {
			return nil
		}
		town, err := commitlog.PendingTown(ctx, log, seq)
		if town == "" || err != nil {
			return err
		}
		entries++
		return index.Put(ctx, town)
	})
	return entries, err
}

// indexAsked makes the entry of the town of a message of the log.
func indexAsked(
	ctx context.Context, log jetstream.Stream, index *commitlog.PendingIndex, seq uint64,
) error {
	msg, err := follow.Get(ctx, log, seq)
	if err != nil {
		return fmt.Errorf("worldengine: log sequence %d: %w", seq, err)
	}
	rec, err := commitlog.ReadRecord(msg.Data)
	if err != nil {
		return err
	}
	return index.PutAsked(ctx, rec.TownID)
}
