package systemtest_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// pages returns the ids of a list's runs with so many on each page, the oldest first. The list that
// begins with the newest has the same runs.
func (w *checkedWorld) pages(filter index.Filter, limit int) []string {
	w.t.Helper()
	newest := w.pagesOf(filter, limit)
	filter.Oldest = true
	oldest := w.pagesOf(filter, limit)
	slices.Reverse(newest)
	require.Equal(w.t, oldest, newest)
	return oldest
}

func (w *checkedWorld) pagesOf(filter index.Filter, limit int) []string {
	w.t.Helper()
	ids := []string{}
	for after, next := uint64(0), uint64(1); next > 0; after = next {
		page, err := w.Engine().Runs().List(w.t.Context(), filter, after, limit)
		require.NoError(w.t, err)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].RunID)
		}
		next = page.Next
		require.True(w.t, next == 0 || after == 0 || next > after == filter.Oldest,
			"the list goes on")
	}
	return ids
}

// remove removes a town as an operator does.
func (w *checkedWorld) remove(id string) engine.Town {
	w.t.Helper()
	reply := queue.NewFuture[engine.Town]()
	require.NoError(w.t, w.Engine().Changes().Submit(id, &machine.Remove{ActorID: "ada"}, reply))
	removed, err := reply.Wait(w.t.Context())
	require.NoError(w.t, err)
	return removed
}

// unknown checks that a town is unknown, however it is looked for.
func (w *checkedWorld) unknown(id string) {
	w.t.Helper()
	_, err := w.Engine().Towns().Get(w.t.Context(), id)
	require.ErrorIs(w.t, err, engine.ErrUnknownTown)
	_, err = w.Engine().Signals().Control(w.t.Context(), id)
	require.ErrorIs(w.t, err, engine.ErrUnknownTown)
	page, err := w.Engine().Towns().List(w.t.Context(), engine.TownQuery{TownList: messages.TownList{Limit: 100}})
	require.NoError(w.t, err)
	for _, t := range page.Towns {
		require.NotEqual(w.t, id, t.TownID)
	}
	count, err := w.Engine().Towns().Count(w.t.Context())
	require.NoError(w.t, err)
	require.EqualValues(w.t, len(page.Towns), count)
}

// Every tool that reads the log knows that a town was removed: fsck and its repair, the index that
// is built anew, a backup, the world file. Its keys stay consumed, and its day its least one.
func TestRemovedTown(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	for _, id := range []string{"kept", "t"} {
		w.found(id)
	}
	done, last := w.talked(w.state("t"), 2)
	file := []byte(`[` + string(last.Canonical) + `]`)
	removed := w.remove("t")
	require.Equal(t, last.Hash, removed.SnapshotHash)
	w.unknown("t")
	w.send(towntest.Proposal(last, handoff.AdvanceProject, "wall"), handoff.Rejected)
	w.again(done[1])
	require.EqualValues(t, 1, w.clean().Counts.Removals)

	created, err := w.Engine().Changes().LoadWorld(t.Context(), file)
	require.NoError(t, err)
	require.Zero(t, created, "a world file brings no removed town back")
	w.Restart()
	w.unknown("t")
	w.movedByBackup()
	w.unknown("t")
	w.publish("world.main.log.t", nil, []byte("garbage"))
	report := w.fsck(fsck.Options{Repair: true})
	require.True(t, report.Clean(), "%+v", report.Repair)
	w.unknown("t")

	before := *last.Snapshot
	before.Day--
	_, err = w.Engine().Changes().Put(t.Context(), town.NewState(&before), "")
	require.ErrorAs(t, err, new(*town.RegressionError))
	w.put(last, "")
	w.again(done[0])
	w.talked(last, 1)
	w.clean()

	requireTampered(t, w.messages(), map[string]tampering{
		"a town that was not removed": edit("remove", 0, func(rec *machine.Record) {
			rec.Removed = false
		}),
		"removed in another state": edit("remove", 0, func(rec *machine.Record) {
			rec.Snapshot = []byte(`{}`)
		}),
		"a removal by a put": edit("put", 1, func(rec *machine.Record) { rec.Removed = true }),
		"a handoff of a removed town": edit("remove", 0, func(rec *machine.Record) {
			rec.Kind = machine.KindConcluded
		}),
		"no removal at all": func(t *testing.T, log logMessages) (logMessages, uint64) {
			i := nth(t, log, "remove", 0)
			return append(log[:i:i], log[i+1:]...), log[i].Sequence
		},
	})
}
