package plugin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/worldengine/internal/kit/platform"
)

// fileHeader is the first line of a memory's file. A file without it is not changed.
const fileHeader = `{"memory":"worldengine-plugin.v1"}` + "\n"

// fewestLines is the least number of lines at which a file is made shorter.
const fewestLines = 1024

// FileConfig configures a File. Zero values mean their documented defaults.
type FileConfig struct {
	// MaxRecords bounds the remembered commands; DefaultMaxRecords. Beyond it the oldest are
	// forgotten, but no command in doubt.
	MaxRecords int
	// Retention is how long a command is remembered; DefaultRetention. A forgotten command would be
	// applied again, so the retention must be longer than an engine may be away.
	Retention time.Duration
	// Now is the clock; time.Now.
	Now func() time.Time
	// Logger is for operators; slog.Default.
	Logger *slog.Logger
}

// File is a Memory in a file with a line of JSON for each record; the last line of an id counts.
// Put appends a line and syncs. When most lines are superseded, the file is replaced by a shorter
// one. A torn last line is dropped: a crash tore it before its Put returned.
type File struct {
	*index
	path   string
	config FileConfig
	lock   *platform.FileLock

	writing   sync.Mutex // guards the rest
	file      *os.File
	size      int64
	lines     int
	compactAt int   // the number of lines at which the file is rewritten
	broken    error // the error of each later Put
}

// OpenFile opens or creates the memory at path, and locks it against other processes (by path +
// ".lock"). Close the File after the plugin.
func OpenFile(path string, config FileConfig) (*File, error) {
	config.MaxRecords = cmp.Or(config.MaxRecords, DefaultMaxRecords)
	config.Retention = cmp.Or(config.Retention, DefaultRetention)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Now == nil {
		config.Now = time.Now
	}
	lock, err := platform.Lock(path + ".lock")
	if errors.Is(err, platform.ErrLocked) {
		return nil, fmt.Errorf("%w: %s.lock", ErrLocked, path)
	}
	if err != nil {
		return nil, fmt.Errorf("plugin: the memory's lock cannot be opened: %w", err)
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

// load reads the file, and opens it for appending. It first rewrites an empty or torn file.
func (f *File) load() error {
	data, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("plugin: the memory cannot be read: %w", err)
	}
	whole := 0
	if len(data) > 0 {
		if whole, err = f.replay(data); err != nil {
			return err
		}
	}
	if whole < len(data) {
		f.config.Logger.Warn(
			"the last record of the plugin's memory was torn by a crash and is dropped",
			"file", f.path, "bytes", len(data)-whole)
	}
	if whole == 0 || whole < len(data) {
		if err := f.rewrite(); err != nil {
			return err
		}
	}
	return f.reopen()
}

// replay reads the lines of a file. It returns their size without a torn last line.
func (f *File) replay(data []byte) (whole int, err error) {
	rest, ours := bytes.CutPrefix(data, []byte(fileHeader))
	if !ours {
		return 0, fmt.Errorf("%w: %s", ErrNotMemory, f.path)
	}
	for whole = len(fileHeader); len(rest) > 0; f.lines++ {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil && r.ApplyID == "" {
			err = errors.New("a record without an applyId")
		}
		switch {
		case !ended, err != nil && len(after) == 0:
			return whole, nil // the last line, torn
		case err != nil:
			return 0, fmt.Errorf("%w: %s at byte %d: %w", ErrCorrupt, f.path, whole, err)
		}
		f.put(r, f.config.Now())
		whole += len(line) + 1
		rest = after
	}
	f.compactAt = max(4*len(f.records), fewestLines)
	return whole, nil
}

// Unfinished returns the commands in doubt, the oldest first. The engine requests them again unless it has
// given up; an operator compares the others with the game.
func (f *File) Unfinished() []Record {
	return slices.DeleteFunc(f.sorted(), func(r Record) bool { return !r.Unfinished() })
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
		// A part of the line may be on disk, and the next line must not follow it.
		if undone := f.file.Truncate(f.size); undone != nil {
			f.breaks(undone)
		}
		return fmt.Errorf("plugin: the memory cannot be written: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		// The state of the disk is unknown, and a second sync may succeed without having written.
		f.breaks(err)
		return f.broken
	}
	f.size += int64(len(line))
	return nil
}

func (f *File) breaks(err error) { f.broken = fmt.Errorf("%w: %s: %w", ErrBroken, f.path, err) }

// Close closes the file. Later calls of Put return ErrBroken.
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

func lineOf(r Record) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("plugin: a record of %s cannot be written: %w", r.ApplyID, err)
	}
	return append(line, '\n'), nil
}

// compact rewrites the file. If that fails, the old file stays in use. The caller holds writing.
func (f *File) compact() {
	// The file is closed first, since Windows does not rename over an open file.
	closed := f.file.Close()
	rewritten := f.rewrite()
	if err := f.reopen(); err != nil {
		f.breaks(err)
	}
	if rewritten != nil {
		f.compactAt = 2 * f.lines // or every later line would try again
	}
	if err := errors.Join(closed, rewritten, f.broken); err != nil {
		f.config.Logger.Error("the plugin's memory could not be written anew",
			"file", f.path, "error", err)
	}
}

// rewrite atomically replaces the file by one without superseded records.
func (f *File) rewrite() error {
	records, fresh := f.sorted(), []byte(fileHeader)
	for _, r := range records {
		line, err := lineOf(r)
		if err != nil {
			return err
		}
		fresh = append(fresh, line...)
	}
	if err := platform.ReplaceFile(f.path, fresh); err != nil {
		return fmt.Errorf("plugin: the memory cannot be written anew: %w", err)
	}
	f.lines, f.compactAt = len(records), max(4*len(records), fewestLines)
	return nil
}

func (f *File) reopen() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("plugin: the memory cannot be opened: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("plugin: the memory cannot be opened: %w", err), file.Close())
	}
	f.file, f.size = file, info.Size()
	return nil
}
