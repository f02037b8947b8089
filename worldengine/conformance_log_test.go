package worldengine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTheLogIsAppendOnly: what the log has persisted can be neither deleted nor purged, nor can the log
// be told to allow it.
func TestTheLogIsAppendOnly(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	seq, err := l.commit(t.Context(), putMessage(t, 1), 0)
	require.NoError(t, err)
	require.Error(t, l.stream.DeleteMsg(t.Context(), seq))
	require.Error(t, l.stream.SecureDeleteMsg(t.Context(), seq))
	require.Error(t, l.stream.Purge(t.Context()))
	config := logConfig("main", 100, time.Hour, 1)
	config.DenyDelete, config.DenyPurge = false, false
	_, err = l.jetStream().UpdateStream(t.Context(), config)
	require.Error(t, err)
	current, err := l.load(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, seq, current.seq)
}
