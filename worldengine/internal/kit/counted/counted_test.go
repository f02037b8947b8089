package counted_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/counted"
)

func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 towns", counted.Of(0, "town"))
	require.Equal(t, "1 town", counted.Of(uint64(1), "town"))
	require.Equal(t, "12 towns", counted.Of(int64(12), "town"))
}
