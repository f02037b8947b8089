package backoff_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/backoff"
)

// One of many is let through, and the next one some time later.
func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s backoff.Seldom
		require.True(t, s.Ready())
		for range 9 {
			time.Sleep(time.Second)
			require.False(t, s.Ready())
		}
		time.Sleep(time.Second)
		require.True(t, s.Ready())
		require.False(t, s.Ready())
	})
}
