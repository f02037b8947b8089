package systemtest_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// fsck finds a configuration that does not follow the settings in the log, records of settings that
// no engine writes so, and settings that nobody can read.
func TestFsck_Settings(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	js, err := jetstream.New(w.Operator())
	require.NoError(t, err)
	log, err := commitlog.OpenReader(t.Context(), js, wire.DefaultWorld)
	require.NoError(t, err)
	before := log.Stream.CachedInfo().Config
	_, err = worldsettings.Change(t.Context(), js, wire.DefaultWorld,
		worldsettings.Settings{HistoryPerTown: 20_000, RequireApproval: "SALVAGE_PLAN"}, false)
	require.NoError(t, err)
	w.clean()
	_, err = js.UpdateStream(t.Context(), before)
	require.NoError(t, err)
	finds := func(whats ...string) {
		t.Helper()
		var found []string
		for _, f := range w.fsck(fsck.Options{}).Findings {
			require.Equal(t, layout.SettingsSubject(wire.DefaultWorld), f.Subject)
			found = append(found, f.What)
		}
		require.Equal(t, whats, found)
	}
	const unfollowed = "the configuration of the stream does not follow the settings of the world: " +
		"start a server of the world again"
	finds(unfollowed)
	w.Restart()
	w.clean()

	js, err = jetstream.New(w.Operator())
	require.NoError(t, err)
	limited := before
	limited.MaxBytes = 1 << 30
	_, err = js.UpdateStream(t.Context(), limited)
	require.NoError(t, err)
	finds("NATS deletes records at a limit of the stream: nats stream edit removes it", unfollowed)
	_, err = engine.Open(t.Context(), w.Operator(), w.Operator(), engine.Config{})
	require.ErrorIs(t, err, commitlog.ErrLogLimited)
	require.ErrorContains(t, err, "nats stream edit WORLD_main_LOG --max-bytes=-1")
	_, err = js.UpdateStream(t.Context(), before)
	require.NoError(t, err)
	w.Restart()
	w.clean()

	store := func(settings ...machine.Setting) {
		t.Helper()
		msg, err := records.Encode(&machine.Record{Kind: machine.KindSettings, Settings: settings},
			layout.SettingsSubject(wire.DefaultWorld), nil)
		require.NoError(t, err)
		msg.Subject = logtest.AppendSubject(t, js, msg.Subject)
		_, err = js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
	}
	js, err = jetstream.New(w.Operator())
	require.NoError(t, err)
	store(machine.Setting{Name: worldsettings.BindingSetting, Value: "telepathy"})
	const incomplete = "the record has not all settings of a world"
	const unguarded = "the message was not guarded by the one before it on its subject"
	finds(unfollowed, incomplete, unguarded)
	store()
	finds("the settings of the world cannot be read", incomplete, unguarded, incomplete, unguarded)
}
