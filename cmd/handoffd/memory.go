package main

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// The soft memory limit is three quarters of the usable memory. The rest is for memory that the Go
// runtime does not count, and for the page cache.
const ofMemory = 0.75

const leastMemory = 128 << 20

// memoryLimit is a value of --memory in bytes: 0 for auto, and math.MaxInt64 for off.
type memoryLimit int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *memoryLimit) UnmarshalText(text []byte) error {
	switch string(text) {
	case "auto":
		*m = 0
	case "off":
		*m = math.MaxInt64
	default:
		if *m = memoryLimit(parseSize(string(text))); *m < leastMemory {
			return fmt.Errorf("it must be auto, off, or a size of at least 128MiB, such as 1536MiB "+
				"or 2GiB, not %q", text)
		}
	}
	return nil
}

// freeSpace is a value of --min-free-disk in bytes: 0 for auto.
type freeSpace int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *freeSpace) UnmarshalText(text []byte) error {
	*f = freeSpace(parseSize(string(text)))
	if *f == 0 && string(text) != "auto" {
		return fmt.Errorf("it must be auto, or a size such as 512MiB or 2GiB, not %q", text)
	}
	return nil
}

// parseSize reads a size such as 1536MiB or 2GiB. It returns 0 for another text.
func parseSize(text string) int64 {
	for suffix, shift := range map[string]int{"MiB": 20, "GiB": 30} {
		if number, found := strings.CutSuffix(text, suffix); found {
			if n, err := strconv.ParseUint(number, 10, 63-shift); err == nil {
				return int64(n) << shift
			}
		}
	}
	return 0
}

// limitMemory sets the soft memory limit of the process, unless GOMEMLIMIT does, and logs it.
func limitMemory(limit int64, logger *slog.Logger) {
	from := "--memory"
	switch {
	case os.Getenv("GOMEMLIMIT") != "":
		limit, from = -1, "GOMEMLIMIT" // sets nothing
	case limit == 0:
		limit, from = usableMemory("/")
		limit = max(leastMemory, int64(float64(limit)*ofMemory))
	}
	debug.SetMemoryLimit(limit)
	logger.Info("soft memory limit", "bytes", debug.SetMemoryLimit(-1), "from", from)
}

// usableMemory returns the memory that the process may use, and its source: the machine, or the least
// limit of its control groups (v2 or v1). root is the directory with proc and sys.
func usableMemory(root string) (bytes int64, from string) {
	bytes, from = math.MaxInt64, "nothing"
	proc, err := procfs.NewFS(filepath.Join(root, "proc"))
	if err != nil {
		return bytes, from
	}
	if machine, err := proc.Meminfo(); err == nil && machine.MemTotalBytes != nil {
		bytes, from = int64(*machine.MemTotalBytes), "the machine"
	}
	process, err := proc.Proc(os.Getpid())
	if err != nil {
		return bytes, from
	}
	groups, _ := process.Cgroups() // none without control groups
	for _, group := range groups {
		path := filepath.Join("/", group.Path) // a group outside the namespace begins with /..
		file := filepath.Join(root, "sys/fs/cgroup", path, "memory.max")
		if slices.Contains(group.Controllers, "memory") { // version 1
			file = filepath.Join(root, "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
		} else if len(group.Controllers) > 0 {
			continue
		}
		if limit := leastLimit(file, root); limit < bytes {
			bytes, from = limit, "its control group"
		}
	}
	return bytes, from
}

// leastLimit returns the least limit in a file of a control group and of the groups above it, up to
// root; math.MaxInt64 if there is none.
func leastLimit(file, root string) int64 {
	least := int64(math.MaxInt64)
	dir, name := filepath.Split(file)
	for dir = filepath.Clean(dir); dir != filepath.Clean(root); dir = filepath.Dir(dir) {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max": no limit
		if err == nil && limit > 0 {
			least = min(least, limit)
		}
	}
	return least
}
