package natstest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"worldengine/worldengine/platform"
	"worldengine/worldengine/storage"
)

// Tests make and delete thousands of small files. On a disk that takes up to a fifth of their
// processor time, so they are kept in memory where there is plenty.
const (
	memory         = "/dev/shm"
	memoryKept     = "worldengine-tests-" // begins the name of each directory there
	leastMemory    = 12 << 30             // that processes can still have
	leastShared    = 8 << 30              // that files can still have
	lockOfMemory   = "lock"
	meminfo        = "/proc/meminfo"
	meminfoKeyword = "MemAvailable:"
)

// inMemory runs tests with a temporary directory in memory, which it deletes, unless TMPDIR is set
// or there is too little memory.
func inMemory(run func() int) int {
	if os.Getenv("TMPDIR") != "" || !muchMemory() {
		return run()
	}
	deleteAbandoned()
	dir, err := os.MkdirTemp(memory, memoryKept)
	if err != nil {
		return run()
	}
	defer os.RemoveAll(dir)
	lock, err := lockDirectory(dir)
	if err != nil {
		return run()
	}
	defer lock.Close()
	if err := os.Setenv("TMPDIR", dir); err != nil {
		panic(err)
	}
	return run()
}

// lockDirectory keeps deleteAbandoned of other processes from a directory. The lock has its name
// once it is held.
func lockDirectory(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockOfMemory)
	lock, err := os.Create(path + ".new")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(platform.Lock(lock), os.Rename(lock.Name(), path)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// muchMemory reports whether there is enough memory, and false where that is not known.
func muchMemory() bool {
	room, err := storage.Open(memory, 1)
	return err == nil && room.Disk().Free >= leastShared && availableMemory() >= leastMemory
}

func availableMemory() (bytes int64) {
	file, err := os.Open(meminfo)
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), meminfoKeyword); ok {
			var kB int64
			_, _ = fmt.Sscan(rest, &kB)
			return kB << 10
		}
	}
	return 0
}

// deleteAbandoned deletes what processes left there that were killed: nobody holds its lock. What
// has no lock yet was only just made.
func deleteAbandoned() {
	locks, _ := filepath.Glob(filepath.Join(memory, memoryKept+"*", lockOfMemory))
	for _, path := range locks {
		lock, err := os.Open(path)
		if err != nil {
			continue
		}
		if platform.Lock(lock) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}
