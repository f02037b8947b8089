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

// BackupStreams returns the streams that a backup of a world has, as a server makes them, in their
// order there: the log, and the alerts, which are not derived from it.
func BackupStreams(
	world string, settings commitlog.Settings, replicas int,
) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		commitlog.LogStream(world, settings, replicas), alerts.AlertConfig(world, replicas),
	}
}

// IndexPending makes the pending index of a restored world; it goes with the stream PENDING. There
// is an entry for each town whose last record has a command that is being applied, which it counts,
// and one for each in which proposals wait for approval.
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
