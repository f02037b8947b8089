package handoffd

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The soft memory limit is three quarters of the usable memory. The rest is for memory that the Go
// runtime does not count, and for the page cache.
const memoryShare = 0.75

const minMemory = 128 << 20

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
		if *m = memoryLimit(parseSize(string(text))); *m < minMemory {
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
		limit, from = usableMemory()
		limit = max(minMemory, int64(float64(limit)*memoryShare))
	}
	debug.SetMemoryLimit(limit)
	logger.Info("soft memory limit", "bytes", debug.SetMemoryLimit(-1), "from", from)
}

// usableMemory returns the memory that the process may use, and its source: the machine, or the least
// limit of its control groups.
func usableMemory() (bytes int64, from string) {
	bytes, from = math.MaxInt64, "nothing"
	if machine, err := memlimit.FromSystem(); err == nil {
		bytes, from = int64(machine), "the machine"
	}
	if group, err := memlimit.FromCgroup(); err == nil && group < uint64(bytes) {
		bytes, from = int64(group), "its control group"
	}
	return bytes, from
}
