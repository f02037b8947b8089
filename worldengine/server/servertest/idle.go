package servertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
)

// Idle waits until an engine has nothing queued and nothing in hand. A client has its answer before
// the town is free: a handoff that is sent then has RunQueued before its other run events. One that
// is sent to an idle engine never has.
func Idle(t testing.TB, e *worldengine.Engine) {
	t.Helper()
	require.Eventually(t, func() bool {
		// An application that ends is queued before it is not counted any more.
		return e.Stats().Applying == 0 && e.Stats().Waiting == 0
	}, time.Minute, time.Millisecond)
}
