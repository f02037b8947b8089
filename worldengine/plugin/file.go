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
)

// FileConfig says how a File works. The zero value of every member means its documented default.
type FileConfig struct {
	// MaxRecords is how many commands are kept; DefaultMaxRecords. The oldest are forgotten first,
	// those that are begun and not done never for their number.
	MaxRecords int
	// Retention is how long a command is kept; DefaultRetention. An engine that asks again for a
	// forgotten one has it applied again, so it is longer than an engine may be away.
	Retention time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger gets what operators should know; slog.Default.
	Logger *slog.Logger
}

// File is a Memory in a file: a line of JSON a record, the last one of an id holds. Put appends and
// syncs; when most of the file is superseded it is written anew, beside itself, and renamed. A last
// line that a crash tore is cut off: its Put never returned.
type File struct {
	path   string
	config FileConfig
	lock   io.Closer

	writing   sync.Mutex // over what follows; taken before mu
	file      *os.File
	size      int64
	lines     int
	compactAt int   // the number of lines at which the file is written anew
	broken    error // why nothing can be written any more

	mu    sync.RWMutex
	known *index
}

// OpenFile opens the memory in the file path, which is created where it is missing, and keeps other
// processes from opening it (by path + ".lock"). Close it after the plugin.
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
		known: newIndex(config.MaxRecords, config.Retention),
	}
	if err := f.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// Get implements Memory.
func (f *File) Get(applyID string) (Record, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	r, ok := f.known.records[applyID]
	return r, ok
}

// Begun returns the commands that are begun and not known to be done, the oldest first. The engine
// asks again for those that it has not given up; the rest is the operator's to compare with the
// game.
func (f *File) Begun() []Record {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.DeleteFunc(f.known.inOrder(), func(r Record) bool { return !r.Begun() })
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
	f.mu.Lock()
	f.known.put(r)
	f.known.forget(f.config.Now())
	f.mu.Unlock()
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
		// Part of the line may stand there. The next one must not follow it.
		if undone := f.file.Truncate(f.size); undone != nil {
			f.breaks(undone)
		}
		return fmt.Errorf("plugin: the memory cannot be written: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		// What is on disk is not known, and a second sync would not say.
		f.breaks(err)
		return f.broken
	}
	f.size += int64(len(line))
	return nil
}

func (f *File) breaks(err error) { f.broken = fmt.Errorf("%w: %s: %w", ErrBroken, f.path, err) }

// Close closes the file. What is put later is refused; what was put is on disk already.
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
