package backup

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// BackupStreams returns the streams in a world's backup, as a server creates them and in order: the
// log, and the alerts, which are not derived from it.
func BackupStreams(
	world string, settings commitlog.Settings, replicas int,
) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		commitlog.StreamConfig(world, settings, replicas), alerts.AlertConfig(world, replicas),
	}
}

// CountPending counts the towns of a log in which a command is being applied.
func CountPending(ctx context.Context, log jetstream.Stream, world string) (n int, err error) {
	err = commitlog.EachLast(ctx, log, []string{wire.LogSubject(world, "*")},
		func(msg *jetstream.RawStreamMsg) error {
			if msg.Header.Get(wire.PendingHeader) != "" {
				n++
			}
			return nil
		})
	return n, err
}
