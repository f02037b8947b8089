//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package platform

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// unlock ends the lock also for the copy of the file that a child has between its fork and its exec.
func unlock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }

// syncParent makes the name of a file that was made or renamed durable.
func syncParent(path string) error { return Sync(filepath.Dir(path)) }

// Sync makes the content of a file, or the names in a directory, durable.
func Sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// ProcessorTime returns the processor time of all threads of this process, or 0 if it is not known.
func ProcessorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// IsPrivate reports whether a file, with its Lstat, belongs to this user and only this user may
// read and write it.
func IsPrivate(_ string, info os.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	return known && info.Mode().Perm() == 0o600 && int(owner.Uid) == os.Geteuid()
}

// IsShared reports whether the mode of a file lets other users read or write it.
func IsShared(info os.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
