package natstest

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"worldengine/worldengine/internal/kit/diskspace"
)

// gcPercent is the same as in handoffd serve: tests with a NATS server have a small live heap and
// leave much garbage, and the default costs them a third of their processor time.
const gcPercent = 300

// Main runs the tests of a package, for its TestMain, with up to parallel of them at a time unless
// -parallel is given, and ends the process. The default is one for each core, which is for tests
// that compute; tests with a NATS server mostly wait for it. It collects garbage as handoffd does,
// unless GOGC is set, and keeps the files of tests in memory, unless TMPDIR is set.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	Collect()
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			panic(err)
		}
	}
	remove := filesInMemory()
	status := m.Run()
	remove()
	os.Exit(status)
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

// memory is Linux's file system in memory, and minRoom how many bytes have to be free there: the
// tests of all packages at once take less than a tenth of it.
const (
	memory  = "/dev/shm"
	minRoom = 2 << 30
)

// filesInMemory makes t.TempDir use memory, unless TMPDIR is set or there is no room: a NATS server
// makes, syncs and removes many small files, for which every test would wait on a disk. remove
// removes the files that tests left.
func filesInMemory() (remove func()) {
	room, err := diskspace.Open(memory, 1)
	if err != nil || os.Getenv("TMPDIR") != "" || room.State().Free < minRoom {
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
