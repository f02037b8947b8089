package servertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
)

// Idle waits until an engine has nothing queued and nothing in hand. A client has its answer before
// the turn of its town is over; once the engine is idle, all of that turn has happened.
func Idle(t testing.TB, e *worldengine.Engine) {
	t.Helper()
	require.Eventually(t, func() bool {
		// An application that ends is queued before it is not counted any more.
		return e.Stats().Applying == 0 && e.Stats().Waiting == 0
	}, time.Minute, time.Millisecond)
}
