package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
)

// knownWorld is a world whose answers a test sets.
type knownWorld struct {
	log, room, lost error
	asked           int
	indexed, end    uint64
}

func (w *knownWorld) Reach(context.Context) error          { w.asked++; return w.log }
func (w *knownWorld) MayStore() error                      { return w.room }
func (w *knownWorld) LogLost() error                       { return w.lost }
func (w *knownWorld) IndexProgress() (indexed, end uint64) { return w.indexed, w.end }

// A server is ready as long as its log has answered lately, so that an election of a leader does
// not take all servers of a cluster out of service; a full disk and the end do at once.
func TestHealth_Check(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away, full := errors.New("no leader"), errors.New("the disk is full")
		h, w := &health{}, &knownWorld{log: away}
		ready := func() error { return h.check(t.Context(), w) }
		require.ErrorIs(t, ready(), away, "the log has never answered")
		w.log = nil
		time.Sleep(askAgain)
		require.NoError(t, ready())
		require.NoError(t, ready())
		require.Equal(t, 2, w.asked, "many questions at once are one to the log")
		w.log = away
		time.Sleep(time.Hour) // nobody has asked since
		require.NoError(t, ready(), "one question without an answer")
		for range 14 {
			time.Sleep(time.Second)
			require.NoError(t, ready(), "an election")
		}
		time.Sleep(time.Second)
		require.ErrorIs(t, ready(), away)
		w.log = nil
		time.Sleep(time.Second)
		require.NoError(t, ready())
		w.room = full
		require.ErrorIs(t, ready(), full)
		w.room, w.lost = nil, commitlog.ErrLogLost
		require.ErrorIs(t, ready(), commitlog.ErrLogLost)
		w.lost, w.indexed, w.end = nil, 1200, 50_000
		require.ErrorContains(t, ready(), "the index is being built: it is at log sequence 1200 of 50000")
		w.end = 0
		require.NoError(t, ready())
		h.draining.Store(true)
		require.ErrorIs(t, ready(), errDraining)
	})
}
