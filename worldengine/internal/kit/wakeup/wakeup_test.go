package wakeup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/wakeup"
)

// Wakes before a look are one wake, and none blocks.
func TestChannel(t *testing.T) {
	t.Parallel()
	c := wakeup.New()
	require.Empty(t, c)
	c.Wake()
	c.Wake()
	require.Len(t, c, 1)
	<-c
	c.Wake()
	require.Len(t, c, 1)
}
