package backup_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Every kind of record that can leave a command pending counts, if it is its town's last: an
// attempt, a pause, and a repair that put the town back.
func TestCountPending(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	log, err := js.CreateStream(t.Context(), commitlog.StreamConfig("main",
		commitlog.Settings{HistoryPerTown: 10}, 1))
	require.NoError(t, err)
	store := func(townID string, kind commitlog.Kind, pending *apply.Pending) {
		rec := commitlog.Record{Kind: kind, TownID: townID}
		msg, err := commitlog.Encode(&rec, wire.LogSubject("main", wire.TownToken(townID)), &commitlog.Entry{
			State: town.NewState(&town.Snapshot{
				SchemaVersion: town.SchemaVersion, Day: 1, TownID: townID,
				SideQuests: []town.SideQuest{}, Projects: []town.Project{},
			}),
			Pending: pending,
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
	store("over", commitlog.KindPending, pending)
	store("over", commitlog.KindHandoff, nil)

	n, err := backup.CountPending(t.Context(), log, "main")
	require.NoError(t, err)
	require.Equal(t, 3, n)
}
