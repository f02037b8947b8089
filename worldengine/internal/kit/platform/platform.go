// Package platform hides the differences of operating systems. On Windows it was built, but never
// run.
package platform

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// ErrLocked is returned when another process, or another opened file of this one, has the lock.
var ErrLocked = errors.New("platform: another process has the lock")

// A FileLock is a file that is locked until Close, or until the process ends in any way.
type FileLock struct{ file *os.File }

// Lock locks the file at path, and makes it if there is none. It returns ErrLocked instead of waiting.
func Lock(path string) (*FileLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &FileLock{file: file}, nil
}

// Close unlocks the file. The file stays: otherwise two processes could lock two files of one name.
func (l *FileLock) Close() error { return errors.Join(unlock(l.file), l.file.Close()) }

// readTimeout bounds ReadFile's wait for the writer of a pipe.
const readTimeout = 2 * time.Second

// ReadFile reads a file of at most limit bytes, even if somebody replaced it. It fails for a longer
// one, such as /dev/zero, and for a pipe that is not closed within 2 s. A named pipe without a
// writer is empty.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_ = file.SetReadDeadline(time.Now().Add(readTimeout)) // a file on a disk has none, and needs none
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", name, limit)
	}
	return data, err
}

// ReplaceFile gives a file, which only its owner may read, another content. Whenever the process or
// the machine ends, the file has the old content or the new one, whole.
func ReplaceFile(name string, content []byte) error {
	fresh := name + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, name); err != nil {
		return err
	}
	return syncParent(name)
}
