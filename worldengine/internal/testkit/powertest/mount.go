//go:build linux

package powertest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// required names the variable in whose presence a machine without FUSE fails the tests.
const required = "CI"

// NeedFUSE skips a test on a machine without FUSE, or without root. In CI the test fails there.
func NeedFUSE(t testing.TB) {
	t.Helper()
	why := ""
	if _, err := os.Stat("/dev/fuse"); err != nil {
		why = err.Error()
	} else if os.Getuid() != 0 {
		why = "only root may mount a file system"
	}
	if why != "" && os.Getenv(required) != "" {
		t.Fatal("this machine cannot lose its power: ", why)
	}
	if why != "" {
		t.Skip("NOT TRIED, since this machine cannot mount a file system: ", why)
	}
}

// Use mounts a disk on a directory until the end of the test, or the returned function is called.
func (d *Disk) Use(t testing.TB, dir string) (unmount func()) {
	t.Helper()
	require.NoError(t, d.Mount(dir))
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			require.NoError(t, d.Unmount())
		}
	}
	t.Cleanup(unmount)
	return unmount
}
