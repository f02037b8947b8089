package natstest

import (
	"os"

	"golang.org/x/sys/unix"
)

// memory is Linux's file system in memory, and leastRoom how many bytes have to be free there: the
// tests of all packages at once take less than a tenth of it.
const (
	memory    = "/dev/shm"
	leastRoom = 2 << 30
)

// filesInMemory makes t.TempDir use memory, unless TMPDIR is set or there is no room: a NATS server
// makes, syncs and removes many small files, for which every test would wait on a disk. remove
// removes the files that tests left.
func filesInMemory() (remove func()) {
	if os.Getenv("TMPDIR") != "" || roomIn(memory) < leastRoom {
		return func() {}
	}
	dir, err := os.MkdirTemp(memory, "worldengine-tests-")
	if err != nil {
		return func() {}
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		panic(err)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// roomIn returns how many bytes are free in the file system of dir, and 0 if that is unknown.
func roomIn(dir string) uint64 {
	var files unix.Statfs_t
	if unix.Statfs(dir, &files) != nil {
		return 0
	}
	return files.Bavail * uint64(files.Bsize)
}
