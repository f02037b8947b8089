package platform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/platform"
)

// A file is locked once, and free again after Close, even if a child still has a copy of the file, as
// any child has between its fork and its exec.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := platform.Lock(path)
	require.NoError(t, err)
	_, err = platform.Lock(path)
	require.ErrorIs(t, err, platform.ErrLocked)

	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{first.File()}
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.NoError(t, first.Close())
	second, err := platform.Lock(path)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, stdin.Close())
	require.NoError(t, child.Wait())
}

// A file is replaced whole or not at all, and nothing is left beside it.
func TestReplaceFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"old content", "new"} {
		require.NoError(t, platform.ReplaceFile(path, []byte(content)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
		require.NoFileExists(t, path+".new")
	}
	require.NoError(t, os.Mkdir(path+".new", 0o700))
	require.Error(t, platform.ReplaceFile(path, []byte("other")))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(got))
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
		require.Equal(t, mode&0o077 != 0, platform.IsShared(info), "%o", mode)
		require.NoError(t, os.Remove(path))
	}
}

// An endless file, and a pipe that nobody writes to or closes, do not block a reader.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, pipe := filepath.Join(dir, "plain"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(plain, []byte("four"), 0o600))
	data, err := platform.ReadFile(plain, 4)
	require.NoError(t, err)
	require.Equal(t, "four", string(data))
	_, err = platform.ReadFile(plain, 3)
	require.ErrorContains(t, err, "more than 3 bytes")
	_, err = platform.ReadFile("/dev/zero", 1<<20)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	_, err = platform.ReadFile(dir, 1<<20)
	require.Error(t, err)
	require.NoError(t, exec.Command("mkfifo", pipe).Run())
	data, err = platform.ReadFile(pipe, 1<<20)
	require.NoError(t, err)
	require.Empty(t, data)
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	_, err = platform.ReadFile(pipe, 1<<20)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
