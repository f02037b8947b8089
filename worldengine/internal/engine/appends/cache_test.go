package appends

import (
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/projector"
)

// The cache keeps runs up to its bound, and the last one whatever its size; and nothing from before
// it was cleared.
func TestCache_Bound(t *testing.T) {
	t.Parallel()
	c := &cache{}
	run := func(events int) *projector.Projection {
		run := &projector.Projection{RunID: uuid.NewString()}
		run.State = runlog.NewState(run.RunID, runlog.AppendPolicy{})
		records := make([]runevents.Record, events)
		for i := range records {
			records[i] = runevents.Record{RunSeq: int64(i + 1)}
			records[i].RunID = run.RunID
			records[i].IdempotencyKey = strconv.Itoa(i)
		}
		_, err := run.State.Add(false, records...)
		require.NoError(t, err)
		return run
	}
	a := run(0)
	c.put(a, c.generation.Load())
	require.Same(t, a, c.remove(a.RunID))
	require.Nil(t, c.remove(a.RunID), "whoever takes a run has it alone")
	before := c.generation.Load()
	c.clear()
	c.put(a, before)
	require.Nil(t, c.remove(a.RunID))
	for n := range 2 * maxCachedEvents / 10 {
		c.put(run(0), c.generation.Load())
		require.LessOrEqual(t, c.events, maxCachedEvents)
		require.Len(t, c.runs, n%(maxCachedEvents/10)+1)
	}
	large := run(maxCachedEvents + 1)
	c.put(large, c.generation.Load())
	require.Len(t, c.runs, 1)
	require.Same(t, large, c.remove(large.RunID))
	require.Zero(t, c.events)
}
