package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// keptStreams has a second name for each file of a world's streams while NATS opens them. If NATS
// (2.15) cannot open a stream, for lack of file handles, of room or of rights, or since its disk fails,
// NATS removes the directory of the stream with all messages.
type keptStreams struct {
	dir    string // one directory for each stream
	logger *slog.Logger
}

// keepStreams gives the files of streams their second names. Streams that NATS has removed before a
// kill are put back first; the caller looks for directories of streams after that.
func keepStreams(config *Config) (*keptStreams, error) {
	k := &keptStreams{filepath.Join(config.Data, "kept"), config.Logger}
	if err := k.putBack(config.Data); err != nil {
		return nil, err
	}
	if err := mendStreams(config); err != nil {
		return nil, err
	}
	for _, d := range neededDirs(config) {
		err := k.keep(d)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
			k.logger.Warn("this file system has no hard links, so a stream that NATS cannot open is not "+
				"kept", "directory", d.path, "error", err)
			return k, k.forget()
		}
		if err != nil {
			return nil, fmt.Errorf("server: stream directory %s: %w", d.path, err)
		}
	}
	return k, nil
}

// keep gives all files of a stream a second name.
func (k *keptStreams) keep(d streamDir) error {
	_, err := linkTree(d.path, filepath.Join(k.dir, d.name))
	return err
}

// putBack puts back the files that NATS has removed, and forgets the second names.
func (k *keptStreams) putBack(data string) error {
	streams, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("server: kept streams: %w", err)
	}
	for _, stream := range streams {
		path := filepath.Join(data, streamPath(stream.Name()))
		linked, err := linkTree(filepath.Join(k.dir, stream.Name()), path)
		if err != nil {
			return fmt.Errorf("server: the stream %s, of which %s has all files, cannot be put back: %w",
				stream.Name(), k.dir, err)
		}
		if linked > 0 {
			k.logger.Error("NATS could not open a stream and removed files of it: they are put back",
				"directory", path, "files", linked)
		}
	}
	return k.forget()
}

// linkTree gives each file below a directory a second name below another directory, unless there is
// one of that name, and returns how many got one.
func linkTree(from, to string) (linked int, err error) {
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o750)
		}
		err = os.Link(path, filepath.Join(to, below))
		switch {
		case errors.Is(err, fs.ErrExist):
			return nil
		case err == nil:
			linked++
		}
		return err
	})
	return linked, err
}

// forget removes the second names.
func (k *keptStreams) forget() error {
	if err := os.RemoveAll(k.dir); err != nil {
		return fmt.Errorf("server: kept streams: %w", err)
	}
	return nil
}
