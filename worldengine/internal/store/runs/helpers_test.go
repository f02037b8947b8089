package runs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// open returns the reader of the runs of a log, as an engine has it.
func open(t testing.TB, l *records.Log) *Reader {
	t.Helper()
	return New(l, indextest.Open(t, l), func(runevents.Alert) {})
}

// openJudged returns the reader of a log with three runs of the town "town-threatened", which ended
// executed, failed and rejected, with their ids and the sequences of their records.
func openJudged(t *testing.T) (r *Reader, ids []string, seqs []uint64) {
	t.Helper()
	l := logtest.New(t)
	r = open(t, l)
	_, err := l.Commit(t.Context(), logtest.PutTown(t, "town-threatened", 13), 0)
	require.NoError(t, err)
	for _, c := range machinetest.Cases(t)[:3] {
		rec, after := logtest.Judged(t, &c)
		seqs = append(seqs, logtest.Commit(t, l, rec, logtest.WithState(after)))
		ids = append(ids, rec.Run.RunID)
	}
	return r, ids, seqs
}

// listed returns the ids of the runs of a list, read in pages of so many.
func listed(t *testing.T, r *Reader, filter index.Filter, limit int) (ids []string) {
	t.Helper()
	for after, more := uint64(0), true; more; more = after > 0 {
		page, err := r.List(t.Context(), filter, after, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Runs), limit)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		after = page.Next
	}
	return ids
}
