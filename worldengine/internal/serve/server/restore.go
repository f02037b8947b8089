package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/streamdirs"
)

// Restore makes a world from a backup, in the data directory of a server that is not running, or in
// an existing NATS, also one that a running server embeds. Of config it uses Embedded.Data, or External,
// and Logger. When it returns, a data directory is wholly on the disk, and Start can serve
// the world. The mark of the restore MUST be on the disk before anything else is, and everything else
// before the mark is removed: until then a loss of power leaves a world that no server serves.
func Restore(
	ctx context.Context, config Config, dir string, options backup.RestoreOptions,
) (*backup.RestoreResult, error) {
	manifest, err := backup.ReadWorld(dir, options.World) // before a data directory is made
	if err != nil {
		return nil, err
	}
	config = config.Alone(cmp.Or(options.As, options.World)).withDefaults()
	config.Embedded.Sync = embedded.SyncInterval // synced by Restore
	nc, end, err := connectAlone(ctx, config, restoring)
	if errors.Is(err, embedded.ErrDataInUse) {
		err = fmt.Errorf("%w; to restore while it runs, give its URL with --nats instead of --data", err)
	}
	if err != nil {
		return nil, err
	}
	defer end() // syncs a data directory
	if config.External.URL == "" {
		options.Sync = streamdirs.Data{Dir: config.Embedded.Data, Logger: config.Logger}.Sync
	}
	return manifest.Restore(ctx, nc, dir, options)
}
