package commitlog_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
)

// An unchanged log passes; one with another message in the place of a known one is lost, until the
// first one is back. The error names the last lost messages.
func TestKnown_Check(t *testing.T) {
	t.Parallel()
	known, other := logtest.New(t), logtest.New(t)
	for n := range 12 {
		require.EqualValues(t, n+1, commit(t, known, int64(n), uint64(n)))
		commit(t, other, int64(max(n, 1)), uint64(n))
	}
	require.NoError(t, known.Known.Check(t.Context(), known.Stream))

	err := known.Known.Check(t.Context(), logtest.New(t).Stream)
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	require.Equal(t, 10, strings.Count(err.Error(), `log sequence `), err)
	require.Contains(t, err.Error(), `lost: log sequence 12 of town "t"`)
	require.Contains(t, err.Error(), "; and 2 more. Put the newer log back")

	require.NoError(t, known.Known.Check(t.Context(), known.Stream))
	require.NoError(t, known.Known.Check(t.Context(), other.Stream),
		"it is the same at the sequences that are compared")
	commit(t, other, 40, 12)
	commit(t, known, 41, 12)
	err = known.Known.Check(t.Context(), other.Stream)
	require.ErrorContains(t, err, `lost: log sequence 13 of town "t"; log sequence 1 of town "t". Put`)
}

// Commits that come while the log is checked are no loss.
func TestKnown_CheckWhileItGrows(t *testing.T) {
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
			require.NoError(t, log.Known.Check(t.Context(), log.Stream))
		}
	}
}
