package streamdirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"worldengine/worldengine/internal/kit/platform"
)

// Sync syncs all that NATS has stored.
func (d Data) Sync() error {
	if err := syncTree(d.Dir, syncPath); err != nil {
		return fmt.Errorf("streamdirs: sync of the data directory: %w", err)
	}
	return nil
}

// SyncWorld syncs the directories of a world's streams.
func (d Data) SyncWorld(world string) error {
	for _, dir := range d.existing(world) {
		err := syncTree(dir.path, syncPath)
		if err == nil {
			err = d.SyncConfig(dir.name)
		}
		if err != nil {
			return fmt.Errorf("streamdirs: sync of the stream %s: %w", dir.name, err)
		}
	}
	return nil
}

// SyncConfig syncs the configuration of a stream, and the directories that lead there.
func (d Data) SyncConfig(stream string) error { return syncDirs(d.Dir, streamPath(stream)) }

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
