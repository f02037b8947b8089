package backup

import (
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/worldsettings"
)

// BackupStreams returns the streams in a world's backup, as a server creates them: the log, and
// then the alerts, which are not derived from the log.
func BackupStreams(
	world string, settings worldsettings.Settings, replicas int,
) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		worldsettings.StreamConfig(world, settings, replicas), alerts.AlertConfig(world, replicas),
	}
}
