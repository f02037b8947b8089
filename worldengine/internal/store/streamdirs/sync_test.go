package streamdirs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A restore syncs every file and directory of its data directory, even if that is a symbolic link.
func TestSyncTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	require.NoError(t, os.MkdirAll(filepath.Join(data, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, "sub", "file"), nil, 0o600))
	require.NoError(t, os.Symlink(data, link))
	for _, at := range []string{data, link} {
		var synced []string
		require.NoError(t, syncTree(at, func(path string) error {
			synced = append(synced, filepath.Base(path))
			return nil
		}))
		require.Equal(t, []string{"data", "sub", "file"}, synced)
	}
}
