package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// The soft memory limit is three quarters of the usable memory: the rest is for memory that the Go
// runtime does not count, and for the page cache.
const ofMemory = 0.75

// parseMemory reads --memory: "auto", "off", or a size such as 1536MiB or 2GiB. It returns the
// limit in bytes, 0 for auto, and math.MaxInt64 for none.
func parseMemory(text string) (int64, error) {
	switch text {
	case "auto":
		return 0, nil
	case "off":
		return math.MaxInt64, nil
	}
	if size := parseSize(text); size >= leastMemory {
		return size, nil
	}
	return 0, fmt.Errorf("%w: --memory must be auto, off, or a size of at least 128MiB, such as "+
		"1536MiB or 2GiB, not %q",
		errUsage, text)
}

const leastMemory = 128 << 20

// parseSize reads a size such as 1536MiB or 2GiB. It returns 0 for another text.
func parseSize(text string) int64 {
	for suffix, unit := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		number, found := strings.CutSuffix(text, suffix)
		n, err := strconv.ParseInt(number, 10, 64)
		if found && err == nil && n > 0 && n < math.MaxInt64/unit {
			return n * unit
		}
	}
	return 0
}

// limitMemory sets the soft memory limit of the process, unless GOMEMLIMIT does, and logs it.
func limitMemory(text string, logger *slog.Logger) error {
	limit, err := parseMemory(text)
	if err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		logger.Info("soft memory limit", "bytes", debug.SetMemoryLimit(-1), "from", "GOMEMLIMIT")
		return nil
	}
	from := "--memory"
	if limit == 0 {
		limit, from = usableMemory("/")
		limit = max(leastMemory, int64(float64(limit)*ofMemory))
	}
	debug.SetMemoryLimit(limit)
	logger.Info("soft memory limit", "bytes", limit, "from", from)
	return nil
}

// usableMemory returns the memory that the process may use, and its source: the machine, or the least
// limit of its control groups (v2 or v1). root is the directory with proc and sys.
func usableMemory(root string) (bytes int64, from string) {
	bytes, from = math.MaxInt64, "nothing"
	if total := machineMemory(filepath.Join(root, "proc/meminfo")); total > 0 {
		bytes, from = total, "the machine"
	}
	for _, file := range limitFiles(root) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is none
		if err == nil && limit > 0 && limit < bytes {
			bytes, from = limit, "its control group"
		}
	}
	return bytes, from
}

// limitFiles returns the files with the limits of the process's control groups, and of the groups
// above.
func limitFiles(root string) (files []string) {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(groups), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, name := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		if parts[1] != "" { // version 1
			if parts[1] != "memory" {
				continue
			}
			base, name = filepath.Join(base, "memory"), "memory.limit_in_bytes"
		}
		for group := filepath.Clean("/" + parts[2]); ; group = filepath.Dir(group) {
			files = append(files, filepath.Join(base, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}

// machineMemory returns the total of a meminfo file, or 0.
func machineMemory(file string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
