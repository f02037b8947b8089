package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/backup"
)

// Restore makes a world from a backup, in the data directory of a server that is not running, or in
// an existing NATS, also one that a running server embeds. Of config it uses Data, or NATS with
// Connection, and Logger. When it returns, a data directory is wholly on the disk, and Start can serve
// the world. The mark of the restore MUST be on the disk before anything else is, and everything else
// before the mark is removed: until then a loss of power leaves a world that no server serves.
func Restore(
	ctx context.Context, config Config, dir string, options backup.RestoreOptions,
) (*backup.Restored, error) {
	manifest, err := backup.ReadWorld(dir, options.World) // before a data directory is made
	if err != nil {
		return nil, err
	}
	config = config.Alone(cmp.Or(options.As, options.World)).withDefaults()
	config.Sync = SyncInterval // synced by Restore
	nc, end, err := connectAlone(config, restoring)
	if errors.Is(err, ErrDataInUse) {
		err = fmt.Errorf("%w; to restore while it runs, give its URL with --nats instead of --data", err)
	}
	if err != nil {
		return nil, err
	}
	defer end() // syncs a data directory
	if config.NATS == "" {
		options.Sync = func() error { return syncTree(config.Data, syncPath) }
	}
	return manifest.Restore(ctx, nc, dir, options)
}

// syncDirs syncs the files of the directory at a path below dir, and all directories from there up to
// dir.
func syncDirs(dir, path string) error {
	entries, err := os.ReadDir(filepath.Join(dir, path))
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			err = errors.Join(err, syncPath(filepath.Join(dir, path, entry.Name())))
		}
	}
	for ; err == nil; path = filepath.Dir(path) {
		if err = syncPath(filepath.Join(dir, path)); path == "." {
			break
		}
	}
	return err
}

// syncTree calls sync, which is syncPath outside tests, for all files and directories below dir, which
// may be a symbolic link.
func syncTree(dir string, sync func(path string) error) error {
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
		return sync(path)
	})
}

// syncPath syncs a file or a directory. NATS removes the files of a deleted stream in the background:
// a file that is gone needs no sync.
func syncPath(path string) error {
	err := platform.Sync(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
