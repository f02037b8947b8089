package backup

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"
)

// The snapshot of an earlier NATS, a tar file, is refused with its remedy.
func TestReadArchive_OtherFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), dataFile)
	f, err := os.Create(path)
	require.NoError(t, err)
	packed := s2.NewWriter(f)
	files := tar.NewWriter(packed)
	require.NoError(t, files.WriteHeader(&tar.Header{Name: "meta.inf"}))
	require.NoError(t, files.Close())
	require.NoError(t, packed.Close())
	require.NoError(t, f.Close())
	_, err = readArchive(path, nil)
	require.ErrorIs(t, err, errOtherFormat)
	require.NotErrorIs(t, err, ErrIncomplete)
	require.ErrorContains(t, err, "update nats-server")
}
