package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"

	"worldengine/worldengine/platform"
)

// fileHeader is the first line of a memory's file: a file without it must not be changed.
const fileHeader = `{"memory":"worldengine-plugin.v1"}` + "\n"

// fewestLines is the smallest number of lines at which a file is rewritten.
const fewestLines = 1024

func lineOf(r Record) ([]byte, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("plugin: a record of %s cannot be written: %w", r.ApplyID, err)
	}
	return append(line, '\n'), nil
}

// load reads the file, cuts off a torn end, and opens it for appending.
func (f *File) load() error {
	data, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("plugin: the memory cannot be read: %w", err)
	}
	if len(data) == 0 {
		if err := f.rewrite(); err != nil {
			return err
		}
		return f.reopen()
	}
	whole, lines, err := f.replay(data)
	if err != nil {
		return err
	}
	f.lines, f.compactAt = lines, max(4*len(f.records), fewestLines)
	if err := f.reopen(); err != nil {
		return err
	}
	return f.cutOff(data[whole:])
}

// replay reads the lines of a file, and returns the size and number of its whole lines.
func (f *File) replay(data []byte) (whole, lines int, err error) {
	rest, ours := bytes.CutPrefix(data, []byte(fileHeader))
	if !ours {
		return 0, 0, fmt.Errorf("%w: %s", ErrNotMemory, f.path)
	}
	for whole = len(fileHeader); len(rest) > 0; lines++ {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil && r.ApplyID == "" {
			err = errors.New("a record without an applyId")
		}
		switch {
		case !ended, err != nil && len(after) == 0:
			return whole, lines, nil // the last line, torn
		case err != nil:
			return 0, 0, fmt.Errorf("%w: %s at byte %d: %w", ErrCorrupt, f.path, whole, err)
		}
		f.put(r, f.config.Now())
		whole += len(line) + 1
		rest = after
	}
	return whole, lines, nil
}

// cutOff removes torn bytes from the end of the file, so that the next line stands alone.
func (f *File) cutOff(torn []byte) error {
	if len(torn) == 0 {
		return nil
	}
	f.config.Logger.Warn(
		"the last record of the plugin's memory was torn by a crash and is dropped",
		"file", f.path, "bytes", len(torn))
	f.size -= int64(len(torn))
	if err := errors.Join(f.file.Truncate(f.size), f.file.Sync()); err != nil {
		return errors.Join(fmt.Errorf("plugin: the memory's torn end cannot be cut off: %w", err),
			f.file.Close())
	}
	return nil
}

// compact rewrites the file if most of it is superseded. If that fails the old file stays in use.
// The caller holds writing.
func (f *File) compact() {
	// Closed first: Windows does not rename over an open file.
	closed := f.file.Close()
	rewritten := f.rewrite()
	if err := f.reopen(); err != nil {
		f.breaks(err)
	}
	if rewritten != nil {
		f.compactAt = 2 * f.lines // not at every line from now on
	}
	if err := errors.Join(closed, rewritten, f.broken); err != nil {
		f.config.Logger.Error("the plugin's memory could not be written anew",
			"file", f.path, "error", err)
	}
}

// rewrite replaces the file by one without superseded records. Whenever the process ends, the file
// is the old or the new one, whole.
func (f *File) rewrite() error {
	records := f.inOrder()
	fresh := []byte(fileHeader)
	for _, r := range records {
		line, err := lineOf(r)
		if err != nil {
			return err
		}
		fresh = append(fresh, line...)
	}
	if err := replaceFile(f.path, fresh); err != nil {
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

// replaceFile syncs a file beside path, and renames it to path.
func replaceFile(path string, data []byte) error {
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return platform.SyncParent(path)
}
