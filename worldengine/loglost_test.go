package worldengine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// A log that ends before the index has lost its end, whoever committed it.
func TestEngine_LogEndsBeforeTheIndex(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	e := openEngine(t, l)
	seq, err := l.Commit(t.Context(), logtest.Put(t, 1), 0) // by another
	require.NoError(t, err)
	require.NoError(t, e.index.Wait(t.Context(), seq))
	require.NoError(t, e.log.Known.Check(t.Context(), e.log.Stream))
	lost := logtest.Put(t, 2)
	e.index.Put(seq+1, wire.LogSubject("main", "t"), lost.Header)
	err = e.log.Known.Check(t.Context(), e.log.Stream)
	require.ErrorIs(t, err, commitlog.ErrLogLost)
	require.ErrorContains(t, err, "up to sequence 2, and ends at 1 now")
	_, err = e.log.Append(t.Context(), logtest.PutTown(t, "u", 1))
	require.ErrorIs(t, err, commitlog.ErrLogLost, "nothing is appended")
}
