package natstest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Main runs the tests of a package, for its TestMain, with up to parallel of them at a time unless
// -parallel is given, and ends the process. The default is one for each core, which is for tests
// that compute; tests with a NATS server mostly wait for it.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// isSet reports whether the command line has a flag.
func isSet(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
