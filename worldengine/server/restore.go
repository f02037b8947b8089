package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"worldengine/worldengine/backup"
)

// Restore makes a world of a backup: in the data directory of a server that is not running, or in
// an existing NATS. Of config it takes Data, or NATS with Connection, and Logger. When it returns,
// Start can serve the world, and what was restored to a data directory is on the disk.
func Restore(
	ctx context.Context, config Config, dir string, options backup.RestoreOptions,
) (*backup.Restored, error) {
	config = config.withDefaults()
	config.Access, config.private, config.Sync = nil, true, SyncInterval // synced at the end
	config.Engine.World = options.World
	s := &Server{}
	if config.NATS == "" {
		var err error
		if s.embedded, err = startEmbedded(&config); err != nil {
			return nil, err
		}
	}
	restored, err := s.restore(ctx, config, dir, options)
	if s.embedded == nil {
		return restored, err
	}
	s.embedded.close()
	if err := errors.Join(err, syncTree(config.Data)); err != nil {
		return nil, err
	}
	return restored, nil
}

func (s *Server) restore(
	ctx context.Context, config Config, dir string, options backup.RestoreOptions,
) (*backup.Restored, error) {
	nc, err := s.connect(config, "restore")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return backup.Restore(ctx, nc, dir, options)
}

// syncTree brings all files and directories below dir to the disk. NATS removes the files of a
// deleted stream in the background: what is gone needs no sync.
func syncTree(dir string) error {
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
		return errors.Join(f.Sync(), f.Close())
	})
}
