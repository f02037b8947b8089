package platform_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/platform"
)

// A file is taken once, and free again when it is closed.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	first := open()
	require.NoError(t, platform.Lock(first))
	require.ErrorIs(t, platform.Lock(open()), platform.ErrLocked)
	require.NoError(t, first.Close())
	require.NoError(t, platform.Lock(open()))
	require.NoError(t, platform.SyncParent(path))
}

// Processor time only grows, and this test uses some.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	before := platform.ProcessorTime()
	require.Positive(t, before)
	require.GreaterOrEqual(t, platform.ProcessorTime(), before)
}

// A file that others may read is not private.
func TestIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o640: false, 0o604: false,
		0o400: false} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chmod(path, mode))
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, want, platform.IsPrivate(path, info), "%o", mode)
		require.NoError(t, os.Remove(path))
	}
}
