package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"worldengine/worldengine/backup"
)

// Restore makes a world from a backup, in the data directory of a server that is not running or in
// an existing NATS. Of config it uses Data, or NATS with Connection, and Logger. When it returns, a
// data directory is wholly on the disk, and Start can serve the world.
func Restore(
	ctx context.Context, config Config, dir string, options backup.RestoreOptions,
) (*backup.Restored, error) {
	manifest, err := backup.ReadWorld(dir, options.World) // before a data directory is made
	if err != nil {
		return nil, err
	}
	config = config.withDefaults()
	config.Sync, config.Engine.World = SyncInterval, options.World // synced at the end
	nc, end, err := connectAlone(config, restoring)
	if err != nil {
		return nil, err
	}
	restored, err := manifest.Restore(ctx, nc, dir, options)
	end()
	if err == nil && config.NATS == "" {
		err = syncTree(config.Data, (*os.File).Sync)
	}
	return restored, err
}

// syncTree syncs all files and directories below dir, which may be a symbolic link. NATS removes the
// files of a deleted stream in the background: a file that is gone needs no sync.
func syncTree(dir string, sync func(*os.File) error) error {
	dir, err := filepath.EvalSymlinks(dir) // WalkDir follows no link
	if err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.IsDir() && !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(sync(f), f.Close())
	})
}
