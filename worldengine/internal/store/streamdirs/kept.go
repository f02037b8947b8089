package streamdirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// HardLinks has a second name for each file of the worlds' streams while NATS opens them. If NATS (2.15) cannot
// open a stream, for lack of file handles, of room or of rights, or since its disk fails, NATS removes
// the directory of the stream with all messages.
type HardLinks struct {
	data Data
	dir  string // one directory for each stream
}

// Keep puts back the streams that NATS has removed before a kill, and forgets their second names. World
// then keeps the streams of a world.
func (d Data) Keep() (*HardLinks, error) {
	k := &HardLinks{d, filepath.Join(d.Dir, "kept")}
	return k, k.PutBack(nil)
}

// LinkWorld repairs the streams of a world, and gives their files second names.
func (k *HardLinks) LinkWorld(world string) error {
	if err := k.data.repairWorld(world); err != nil {
		return err
	}
	for _, d := range k.data.Needed(world) {
		_, err := linkTree(d.path, filepath.Join(k.dir, d.name))
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
			k.data.Logger.Warn("this file system has no hard links, so a stream that NATS cannot open is not "+
				"kept", "directory", d.path, "error", err)
			return k.forget()
		}
		if err != nil {
			return d.failed(err)
		}
	}
	return nil
}

// PutBack puts back the files that NATS has removed from streams, from all of them if lost is nil, and
// forgets the second names.
func (k *HardLinks) PutBack(lost map[string]bool) error {
	streams, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("streamdirs: kept streams: %w", err)
	}
	for _, stream := range streams {
		if lost != nil && !lost[stream.Name()] {
			continue
		}
		path := filepath.Join(k.data.Dir, streamPath(stream.Name()))
		linked, err := linkTree(filepath.Join(k.dir, stream.Name()), path)
		if err != nil {
			return fmt.Errorf("streamdirs: the stream %s, of which %s has all files, cannot be put back: %w",
				stream.Name(), k.dir, err)
		}
		if linked > 0 {
			k.data.Logger.Error("NATS could not open a stream and removed files of it: they are put back",
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
func (k *HardLinks) forget() error {
	if err := os.RemoveAll(k.dir); err != nil {
		return fmt.Errorf("streamdirs: kept streams: %w", err)
	}
	return nil
}
