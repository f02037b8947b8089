package commitlog_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
)

// A log is lost while it ends before the last commit, or lacks messages of the index: up to that
// commit, or after it. Nothing is appended then. The error names the messages that were lost first.
func TestContinuity_Verify(t *testing.T) {
	t.Parallel()
	log, older := logtest.New(t), logtest.New(t)
	for n := range uint64(3) {
		commit(t, log, int64(n), n)
	}
	commit(t, older, 0, 0)
	require.NoError(t, log.Continuity.Verify(t.Context(), log.Stream))
	err := log.Continuity.Verify(t.Context(), older.Stream)
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	require.ErrorContains(t, err, "read: it ends at sequence 1, and had 3. Put the newer log back")
	require.NoError(t, log.Continuity.Verify(t.Context(), log.Stream))

	for _, upTo := range []uint64{3, math.MaxUint64} {
		lost := map[uint64]string{upTo: "log sequence 7"}
		log.Continuity.Missing = func(_ context.Context, upTo uint64) (string, error) { return lost[upTo], nil }
		require.ErrorContains(t, log.Continuity.Verify(t.Context(), log.Stream), "read: log sequence 7. Put")
		lost[upTo] = "log sequence 8"
		_, err = log.Append(t.Context(), logtest.Put(t, 4))
		require.ErrorContains(t, err, "read: log sequence 7. Put")
		require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
		clear(lost)
		require.NoError(t, log.Continuity.Verify(t.Context(), log.Stream))
	}
	commit(t, log, 4, 3)
}

// A log whose stream was removed is lost, too.
func TestContinuity_Removed(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	commit(t, log, 0, 0)
	name := log.Stream.CachedInfo().Config.Name
	require.NoError(t, logtest.JetStream(log).DeleteStream(t.Context(), name))
	err := log.Continuity.Verify(t.Context(), log.Stream)
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	require.ErrorContains(t, err, "its stream "+name+" does not exist any more. Put it back, or restore a backup")

	_, err = logtest.JetStream(log).CreateStream(t.Context(), log.Stream.CachedInfo().Config)
	require.NoError(t, err)
	err = log.Continuity.Verify(t.Context(), log.Stream)
	require.ErrorContains(t, err, "it ends at sequence 0, and had 1. Put the newer log back")
}

// A suspect log is verified before the first append.
func TestContinuity_Suspect(t *testing.T) {
	t.Parallel()
	log, lost := logtest.New(t), "log sequence 7"
	log.Continuity.Missing = func(context.Context, uint64) (string, error) { return lost, nil }
	log.Continuity.Suspect()
	<-log.Continuity.Suspicions()
	_, err := log.Append(t.Context(), logtest.Put(t, 0))
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	lost = ""
	commit(t, log, 0, 0)
}

// Over a new connection the log is verified before the next append. A commit that may have gone over
// a new connection tells nothing about the log.
func TestContinuity_Connection(t *testing.T) {
	t.Parallel()
	log, other, lost, dials := logtest.New(t), logtest.New(t), "", uint64(0)
	log.Continuity.Connection = func() uint64 { return dials }
	log.Continuity.Missing = func(context.Context, uint64) (string, error) { return lost, nil }
	log.OnAppendTried = func(time.Duration) { dials++ }
	commit(t, log, 0, 0)
	require.NoError(t, log.Continuity.Verify(t.Context(), other.Stream))
	dials, lost = 5, "log sequence 7"
	_, err := log.Append(t.Context(), logtest.Put(t, 1))
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	lost, log.OnAppendTried = "", nil
	commit(t, log, 1, 1)
	require.ErrorContains(t, log.Continuity.Verify(t.Context(), other.Stream), "and had 2")
}

// Commits that come while the log is verified are no loss.
func TestContinuity_VerifyWhileItGrows(t *testing.T) {
	t.Parallel()
	log := logtest.New(t)
	committed := make(chan error, 1)
	go func() {
		var err error
		for n := uint64(0); n < 300 && err == nil; n++ {
			_, err = log.Commit(t.Context(), logtest.Put(t, int64(n)), n)
		}
		committed <- err
	}()
	for {
		select {
		case err := <-committed:
			require.NoError(t, err)
			return
		default:
			require.NoError(t, log.Continuity.Verify(t.Context(), log.Stream))
		}
	}
}
