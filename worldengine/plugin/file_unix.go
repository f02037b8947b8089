//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package plugin

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lockFile keeps other processes from the lock of this name until it is closed or the process ends.
// The file itself stays: to remove it would let two processes lock two files of one name.
func lockFile(name string) (io.Closer, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("plugin: the memory's lock cannot be opened: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrLocked, name, err), file.Close())
	}
	return file, nil
}

// syncDirectory makes the name of a file that was renamed durable.
func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
