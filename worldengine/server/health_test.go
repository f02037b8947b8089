package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server is ready as long as its log has answered lately, so that an election of a leader does
// not take all servers of a cluster out of service.
func TestHealth_Check(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away, asked := errors.New("no leader"), 0
		h, answer := &health{}, away
		ready := func() error {
			return h.check(t.Context(), func(context.Context) error { asked++; return answer })
		}
		require.ErrorIs(t, ready(), away, "the log has never answered")
		answer = nil
		time.Sleep(askAgain)
		require.NoError(t, ready())
		require.NoError(t, ready())
		require.Equal(t, 2, asked, "many questions at once are one to the log")
		answer = away
		time.Sleep(time.Hour) // nobody has asked since
		require.NoError(t, ready(), "one question without an answer")
		for range 14 {
			time.Sleep(time.Second)
			require.NoError(t, ready(), "an election")
		}
		time.Sleep(time.Second)
		require.ErrorIs(t, ready(), away)
		answer = nil
		time.Sleep(time.Second)
		require.NoError(t, ready())
	})
}
