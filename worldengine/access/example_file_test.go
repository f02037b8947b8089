package access

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example is a valid file, once its passwords are where it says.
func TestTheExample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../examples/access/access.json")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "access.json"), data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "frontier.password"),
		[]byte(sentinel), 0o600))
	cfg, err := ReadFile(filepath.Join(dir, "access.json"), func(string) (string, bool) {
		return sentinel, true
	})
	require.NoError(t, err)
	require.Len(t, cfg.Users, 4)
}
