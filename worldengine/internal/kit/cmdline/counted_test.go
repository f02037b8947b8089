package cmdline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/cmdline"
)

func TestCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 towns", cmdline.Counted(0, "town"))
	require.Equal(t, "1 town", cmdline.Counted(uint64(1), "town"))
	require.Equal(t, "12 towns", cmdline.Counted(int64(12), "town"))
}
