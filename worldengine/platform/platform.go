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

// patience bounds ReadFile's wait for the writer of a pipe.
const patience = 2 * time.Second

// ReadFile reads a file of at most limit bytes, even if somebody replaced it. It fails for a longer
// one, such as /dev/zero, and for a pipe that is not closed within 2 s. A named pipe without a
// writer is empty.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_ = file.SetReadDeadline(time.Now().Add(patience)) // a file on a disk has none, and needs none
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", name, limit)
	}
	return data, err
}
