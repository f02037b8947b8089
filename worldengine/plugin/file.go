package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"worldengine/worldengine/platform"
)

// FileConfig configures a File. Zero values mean their documented defaults.
type FileConfig struct {
	// MaxRecords bounds the remembered commands; DefaultMaxRecords. The oldest are forgotten first,
	// but never a command in doubt.
	MaxRecords int
	// Retention is how long a command is remembered; DefaultRetention. A forgotten command would be
	// applied again, so it is longer than an engine may be away.
	Retention time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger logs for operators; slog.Default.
	Logger *slog.Logger
}

// File is a Memory in a file: a line of JSON for each record; an id's last line holds. Put appends
// and syncs; when most of the file is superseded it is rewritten beside itself and renamed. A last
// line that a crash tore is cut off: its Put never returned.
type File struct {
	*index
	path   string
	config FileConfig
	lock   io.Closer

	writing   sync.Mutex // over the rest
	file      *os.File
	size      int64
	lines     int
	compactAt int   // the number of lines at which the file is written anew
	broken    error // the reason why nothing can be written any more
}

// OpenFile opens or creates the memory at path, and locks it against other processes (by path +
// ".lock"). Close it after the plugin.
func OpenFile(path string, config FileConfig) (*File, error) {
	config.MaxRecords = cmp.Or(config.MaxRecords, DefaultMaxRecords)
	config.Retention = cmp.Or(config.Retention, DefaultRetention)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Now == nil {
		config.Now = time.Now
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	f := &File{
		path: path, config: config, lock: lock,
		index: newIndex(config.MaxRecords, config.Retention),
	}
	if err := f.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// Begun returns the commands in doubt, the oldest first. The engine asks again for those that it
// has not given up; an operator has to compare the rest with the game.
func (f *File) Begun() []Record {
	return slices.DeleteFunc(f.inOrder(), func(r Record) bool { return !r.Begun() })
}

// Put implements Memory. It returns when r is on disk.
func (f *File) Put(r Record) error {
	line, err := lineOf(r)
	if err != nil {
		return err
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.append(line); err != nil {
		return err
	}
	f.put(r, f.config.Now())
	if f.lines++; f.lines >= f.compactAt {
		f.compact()
	}
	return nil
}

// append writes a line to the disk. The caller holds writing.
func (f *File) append(line []byte) error {
	if f.broken != nil {
		return f.broken
	}
	if _, err := f.file.Write(line); err != nil {
		// Part of the line may be on disk. The next one must not follow it.
		if undone := f.file.Truncate(f.size); undone != nil {
			f.breaks(undone)
		}
		return fmt.Errorf("plugin: the memory cannot be written: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		// The state of the disk is unknown, and a second sync would not tell.
		f.breaks(err)
		return f.broken
	}
	f.size += int64(len(line))
	return nil
}

func (f *File) breaks(err error) { f.broken = fmt.Errorf("%w: %s: %w", ErrBroken, f.path, err) }

// Close closes the file. It has every record on disk already, and refuses more.
func (f *File) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.file == nil {
		return nil
	}
	f.breaks(os.ErrClosed)
	err := f.file.Close()
	f.file = nil
	return errors.Join(err, f.lock.Close())
}

// lockFile locks name against other processes until it is closed or the process ends. The file
// stays: if it were removed, two processes could lock two files of one name.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("plugin: the memory's lock cannot be opened: %w", err)
	}
	if err := platform.Lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrLocked, name, err), file.Close())
	}
	return file, nil
}
