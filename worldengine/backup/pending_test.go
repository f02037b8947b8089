package backup_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Every kind of record that can leave a command pending gets its town into the index of a restored
// world: an attempt, a pause, and a repair that put the town back.
func TestIndexPendingFindsEveryPendingTown(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), commitlog.StreamConfig("main", 10, 1))
	require.NoError(t, err)
	asked := approval.List(nil)
	store := func(townID string, kind commitlog.Kind, pending *apply.Pending) {
		rec := commitlog.Record{Kind: kind, TownID: townID}
		msg, err := rec.Message(wire.LogSubject("main", wire.TownToken(townID)), &commitlog.Entry{
			State: town.NewState(&town.Snapshot{
				SchemaVersion: town.SchemaVersion, Day: 1, TownID: townID,
				SideQuests: []town.SideQuest{}, Projects: []town.Project{},
			}),
			Pending: pending, Approvals: asked,
		})
		require.NoError(t, err)
		_, err = js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
	}
	pending := &apply.Pending{Via: apply.Plugin, Handoff: []byte("{}"), Expected: []byte("{}")}
	store("asked", commitlog.KindPending, pending)
	store("paused", commitlog.KindControl, pending)
	store("mended", commitlog.KindMend, pending)
	store("idle", commitlog.KindMend, nil)
	store("put", commitlog.KindPut, nil)

	waits := town.NewState(&town.Snapshot{
		SchemaVersion: town.SchemaVersion, Day: 1, TownID: "waits",
		SideQuests: []town.SideQuest{}, Projects: []town.Project{},
	})
	asked = approval.List{{HandoffID: "handoff_1", SnapshotHash: waits.Hash, Handoff: []byte("{}")}}
	store("waits", commitlog.KindControl, nil)
	store("stale", commitlog.KindPut, nil)

	n, err := backup.IndexPending(t.Context(), nc, "main", 1)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	index, err := js.Stream(t.Context(), wire.PendingStream("main"))
	require.NoError(t, err)
	for _, townID := range []string{"asked", "paused", "mended"} {
		_, err := index.GetLastMsgForSubject(t.Context(), wire.PendingSubject("main", townID))
		require.NoError(t, err, townID)
	}
	subjects, err := commitlog.SubjectsOf(t.Context(), index, wire.AskedSubject("main", "*"))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{wire.AskedSubject("main", "waits"): 1}, subjects)
}
