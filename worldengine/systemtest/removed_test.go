package systemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
)

// remove removes a town as an operator does.
func (w *checkedWorld) remove(id string) worldengine.Town {
	w.t.Helper()
	reply := queue.NewReply[worldengine.Town]()
	require.NoError(w.t, w.engine.SubmitRemove(id, "ada", reply))
	removed, err := reply.Wait(w.t.Context())
	require.NoError(w.t, err)
	return removed
}

// unknown checks that a town is unknown, however it is looked for.
func (w *checkedWorld) unknown(id string) {
	w.t.Helper()
	_, err := w.engine.Town(w.t.Context(), id)
	require.ErrorIs(w.t, err, worldengine.ErrUnknownTown)
	_, err = w.engine.Control(w.t.Context(), id)
	require.ErrorIs(w.t, err, worldengine.ErrUnknownTown)
	page, err := w.engine.List(w.t.Context(), worldengine.TownQuery{TownList: messages.TownList{Limit: 100}})
	require.NoError(w.t, err)
	for _, t := range page.Towns {
		require.NotEqual(w.t, id, t.TownID)
	}
	count, err := w.engine.CountTowns(w.t.Context())
	require.NoError(w.t, err)
	require.EqualValues(w.t, len(page.Towns), count)
}

// Every tool that reads the log knows that a town was removed: fsck and its repair, the index that
// is built anew, a backup, the world file. Its keys stay consumed, and its day its least one.
func TestRemovedTown(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{})
	for _, id := range []string{"kept", "t"} {
		w.found(id)
	}
	done, last := w.talked(w.now("t").State, 2)
	file := []byte(`[` + string(last.Canonical) + `]`)
	removed := w.remove("t")
	require.Equal(t, last.Hash, removed.State.Hash)
	w.unknown("t")
	w.send(proposal(last, handoff.AdvanceProject, "wall"), handoff.Rejected)
	w.again(done[1])
	require.EqualValues(t, 1, w.clean().Counts.Removals)

	created, err := w.engine.LoadWorld(t.Context(), file)
	require.NoError(t, err)
	require.Zero(t, created, "a world file brings no removed town back")
	w.close()
	w.open()
	w.unknown("t")
	w.movedByBackup()
	w.unknown("t")
	w.publish("world.main.log.t", nil, []byte("garbage"))
	report := w.fsck(fsck.Options{Repair: true})
	require.True(t, report.Clean(), "%+v", report.Repair)
	w.unknown("t")

	before := *last.Snapshot
	before.Day--
	_, err = w.engine.Put(t.Context(), town.NewState(&before), "")
	require.ErrorAs(t, err, new(*town.RegressionError))
	w.put(last, "")
	w.again(done[0])
	w.talked(last, 1)
	w.clean()

	requireTampered(t, w.messages(), []tamper{
		{"a town that was not removed", edit("remove", 0, func(rec *commitlog.Record) {
			rec.Removed = false
		})},
		{"removed in another state", edit("remove", 0, func(rec *commitlog.Record) {
			rec.Snapshot = []byte(`{}`)
		})},
		{"a removal by a put", edit("put", 1, func(rec *commitlog.Record) { rec.Removed = true })},
		{"a handoff of a removed town", edit("remove", 0, func(rec *commitlog.Record) {
			rec.Kind = commitlog.KindHandoff
		})},
		{"no removal at all", func(t *testing.T, log logMessages) (logMessages, uint64) {
			i := nth(t, log, "remove", 0)
			return append(log[:i:i], log[i+1:]...), log[i].Sequence
		}},
	})
}
