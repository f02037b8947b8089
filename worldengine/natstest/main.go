package natstest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"worldengine/worldengine/storage"
)

// gcPercent is that of handoffd serve: tests with a NATS server have a small live heap and leave
// much garbage, and the default costs them a third of their processor time.
const gcPercent = 300

// Main runs the tests of a package, for its TestMain, with up to parallel of them at a time unless
// -parallel is given, and ends the process. The default is one for each core, which is for tests
// that compute; tests with a NATS server mostly wait for it. It collects garbage as handoffd does,
// unless GOGC is set. Temporary files are kept in memory where there is enough, unless TMPDIR is
// set.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	Collect()
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			panic(err)
		}
	}
	keep := inMemory()
	code := m.Run()
	if keep != "" {
		_ = os.RemoveAll(keep) // empty, but for what a process that was killed has left
	}
	os.Exit(code)
}

// memory is where Linux keeps files in memory, and enough is how many bytes must be free there, and
// of the machine's memory: several packages are tested at a time.
const (
	memory = "/dev/shm"
	enough = 6 << 30
)

// inMemory sets TMPDIR to a directory in memory and returns it, or "" where TMPDIR stays. The small
// files and directories of a server take a third of the processor time of its start on a disk.
func inMemory() string {
	room, err := storage.Open(memory, 1)
	if err != nil || os.Getenv("TMPDIR") != "" || min(room.Disk().Free, available()) < enough {
		return ""
	}
	dir, err := os.MkdirTemp(memory, "go-test-")
	if err != nil {
		return ""
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		panic(err)
	}
	return dir
}

// available returns how many bytes of memory may be taken, or 0 where the system does not say.
func available() uint64 {
	text, _ := os.ReadFile("/proc/meminfo")
	_, text, _ = bytes.Cut(text, []byte("MemAvailable:"))
	var kib uint64
	_, _ = fmt.Sscan(string(text), &kib)
	return kib << 10
}

// Collect sets how often garbage is collected, unless GOGC is set; for a TestMain that does not
// call Main.
func Collect() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// isSet reports whether the command line has a flag.
func isSet(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
