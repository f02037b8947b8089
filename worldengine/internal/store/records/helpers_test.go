package records_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// commit puts the town t at a day, behind a sequence, and returns its own.
func commit(t *testing.T, l *records.Log, day int64, guard uint64) uint64 {
	t.Helper()
	seq, err := l.Commit(t.Context(), logtest.Put(t, day), guard)
	require.NoError(t, err)
	return seq
}
