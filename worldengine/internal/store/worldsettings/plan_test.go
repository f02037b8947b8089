package worldsettings_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/outbox"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 12) }

// newWorld makes the log of a world with settings, as a server does, and three messages on one
// subject.
func newWorld(t *testing.T, s worldsettings.Settings) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	serveWith(t, js, s)
	for range 3 {
		_, err := js.Publish(t.Context(), logtest.AppendSubject(t, js, layout.LogSubject("w", "t")), nil)
		require.NoError(t, err)
	}
	return js
}

// serveWith opens the log of the world as a server with the settings does.
func serveWith(t *testing.T, js jetstream.JetStream, s worldsettings.Settings) *worldsettings.Plan {
	t.Helper()
	plan, err := worldsettings.PlanToServe(t.Context(), js, "w", s, false)
	require.NoError(t, err)
	_, err = worldsettings.OpenLog(t.Context(), js, "w", plan, 1, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return plan
}

// logOf returns the log of the world.
func logOf(t *testing.T, js jetstream.JetStream) *commitlog.Log {
	t.Helper()
	log, err := commitlog.OpenReader(t.Context(), js, "w")
	require.NoError(t, err)
	return log
}

// settings returns the settings that the log has, and those that the configuration has.
func settings(t *testing.T, js jetstream.JetStream) (stored, configured worldsettings.Stored) {
	t.Helper()
	log := logOf(t, js)
	stored, err := worldsettings.Read(t.Context(), log)
	require.NoError(t, err)
	return stored, worldsettings.ReadStreamConfig(log.Stream.CachedInfo().Config)
}

// A change of settings lists the messages that it discards, is refused unless that is accepted, and
// then holds for the world's streams and for each server that starts.
func TestChangeSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first := worldsettings.Default()
	first.HistoryPerTown = 100
	js := newWorld(t, first)

	served, err := worldsettings.PlanToServe(ctx, js, "w", worldsettings.Settings{}, false)
	require.NoError(t, err)
	require.Equal(t, first, served.Settings, "a server that is given none has the world's")
	_, err = worldsettings.PlanToServe(ctx, js, "w", worldsettings.Settings{HistoryPerTown: 60}, false)
	require.ErrorContains(t, err, "--history-per-town 60, and the world has 100")
	served, err = worldsettings.PlanToServe(ctx, js, "w", worldsettings.Settings{HistoryPerTown: 60}, true)
	require.NoError(t, err)
	require.Equal(t, int64(60), served.Settings.HistoryPerTown)

	lower := worldsettings.Settings{HistoryPerTown: 1}
	_, err = worldsettings.Change(ctx, js, "w", lower, false)
	var refused *worldsettings.DifferError
	require.ErrorAs(t, err, &refused)
	require.EqualValues(t, 2, refused.Discards)
	stored := func() *jetstream.StreamInfo {
		s, err := js.Stream(ctx, layout.LogStream("w"))
		require.NoError(t, err)
		return s.CachedInfo()
	}
	require.Equal(t, uint64(4), stored().State.Msgs, "nothing was discarded")

	higher := worldsettings.Settings{HistoryPerTown: 200, Compress: worldsettings.CompressAll}
	plan, err := worldsettings.Change(ctx, js, "w", higher, false)
	require.NoError(t, err, "it discards nothing")
	require.Zero(t, plan.Discards)
	require.Len(t, plan.Differences, 2)
	plan, err = worldsettings.Change(ctx, js, "w", lower, true)
	require.NoError(t, err)
	require.Equal(t, refused.Discards, plan.Discards)
	log := stored()
	require.Equal(t, uint64(2), log.State.Msgs, "one of the town, and the settings")
	require.Equal(t, commitlog.DuplicateWindow, log.Config.Duplicates)
	require.Equal(t, jetstream.S2Compression, log.Config.Compression)
	want := lower.WithDefaults(higher).WithDefaults(first)
	inLog, configured := settings(t, js)
	require.Equal(t, want, inLog.Settings)
	inLog.Sequence = 0
	require.Equal(t, inLog, configured)
	require.Equal(t, want, serveWith(t, js, want).Settings)
}

// The settings in the log count, whatever the configuration of the stream says, as after a kill
// amid a change: the next start makes it follow.
func TestOpenWorldLog_SettingsOfLog(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, worldsettings.Default())
	before := logOf(t, js).Stream.CachedInfo().Config
	strict := worldsettings.Settings{RequireApproval: "PROJECT_ADVANCE", HistoryPerTown: 20_000}
	_, err := worldsettings.Change(ctx, js, "w", strict, false)
	require.NoError(t, err)
	_, err = js.UpdateStream(ctx, before)
	require.NoError(t, err)

	served := serveWith(t, js, worldsettings.Settings{})
	require.Equal(t, strict.WithDefaults(worldsettings.Default()), served.Settings)
	inLog, configured := settings(t, js)
	require.Equal(t, served.Settings, inLog.Settings)
	require.Equal(t, served.Settings, configured.Settings)
	require.EqualValues(t, worldsettings.DefaultHistoryPerTown, inLog.MinHistory)
}

// The first start of a world of an earlier program stores its settings in the log.
func TestOpenWorldLog_EarlierProgram(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(js jetstream.JetStream) error{
		"by a server": func(js jetstream.JetStream) error { serveWith(t, js, worldsettings.Settings{}); return nil },
		"by a change": func(js jetstream.JetStream) error {
			_, err := worldsettings.Change(t.Context(), js, "w",
				worldsettings.Settings{Compress: worldsettings.CompressAll}, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, err := jetstream.New(natstest.Connect(t))
			require.NoError(t, err)
			earlier := worldsettings.Settings{HistoryPerTown: 4000, Binding: apply.Plugin,
				RequireApproval: "SALVAGE_PLAN", Compress: worldsettings.CompressAll}
			config := worldsettings.StreamConfig("w", earlier, 1)
			config.Subjects = config.Subjects[:len(config.Subjects)-1]
			config.Metadata["worldengine-least-history"] = "1500"
			config.Metadata["worldengine-restored-to"] = "9"
			_, err = js.CreateStream(t.Context(), config)
			require.NoError(t, err)
			before, _ := settings(t, js)
			require.Zero(t, before.Sequence)
			require.NoError(t, open(js))
			after, configured := settings(t, js)
			require.EqualValues(t, 1, after.Sequence)
			before.Sequence = 1
			require.Equal(t, before, after)
			after.Sequence = 0
			require.Equal(t, after, configured)
			require.Equal(t, worldsettings.Stored{Settings: earlier, MinHistory: 1500, RestoredTo: 9},
				configured)
		})
	}
}

// Of two changes that were decided on the same settings, one is stored; the other is decided again.
func TestOpenWorldLog_LostRace(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, worldsettings.Default())
	stale, err := worldsettings.PlanToServe(ctx, js, "w", worldsettings.Settings{HistoryPerTown: 9000}, true)
	require.NoError(t, err)
	strict := worldsettings.Settings{RequireApproval: "PROJECT_ADVANCE"}
	_, err = worldsettings.Change(ctx, js, "w", strict, false)
	require.NoError(t, err)
	_, err = worldsettings.OpenLog(ctx, js, "w", stale, 1, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, commitlog.ErrLostRace)
	inLog, _ := settings(t, js)
	require.Equal(t, strict.WithDefaults(worldsettings.Default()), inLog.Settings)
}

// Without a readable record, and without a configuration, nobody knows which proposals a person must
// approve. Then only all settings together are accepted.
func TestReadSettings_Lost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, js jetstream.JetStream){
		"no record, and the configuration was lost": func(t *testing.T, js jetstream.JetStream) {
			require.NoError(t, js.DeleteStream(t.Context(), layout.LogStream("w")))
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: layout.LogStream("w"),
				Metadata: map[string]string{worldsettings.ConfigLost: "true", "worldengine.format": "3"}})
			require.NoError(t, err)
		},
		"a record of something else": func(t *testing.T, js jetstream.JetStream) {
			_, err := js.Publish(t.Context(), logtest.AppendSubject(t, js, layout.SettingsSubject("w")), []byte("{}"))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, js := t.Context(), newWorld(t, worldsettings.Default())
			lose(t, js)
			for _, given := range []worldsettings.Settings{{}, {RequireApproval: "none"}} {
				_, err := worldsettings.PlanToServe(ctx, js, "w", given, true)
				require.ErrorIs(t, err, worldsettings.ErrSettingsLost)
			}
			all := worldsettings.Default()
			all.RequireApproval = "PROJECT_ADVANCE"
			_, err := worldsettings.Change(ctx, js, "w", all, true)
			require.NoError(t, err)
			require.Equal(t, all, serveWith(t, js, worldsettings.Settings{}).Settings)
		})
	}
}

// A world whose log is missing is not new while any other stream of it exists.
func TestPlanSettings_LogMissing(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, worldsettings.Default())
	for _, name := range []string{layout.AlertStream("v"), wire.EventStream("v"), layout.DeadLetterStream("v")} {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name})
		require.NoError(t, err)
		_, err = worldsettings.MakePlan(ctx, js, "v", worldsettings.Settings{})
		require.ErrorIs(t, err, worldsettings.ErrLogMissing)
		require.ErrorContains(t, err, name)
		require.NoError(t, js.DeleteStream(ctx, name))
	}
}

// A start that changes nothing does not have NATS write the configuration anew: a loss of power could
// cost it.
func TestOpenStream_Unchanged(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, worldsettings.Default())
	updates, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.UPDATED.>")
	require.NoError(t, err)
	for _, config := range []jetstream.StreamConfig{
		alerts.AlertConfig("w", 1), outbox.StreamConfig("w", time.Hour, 100, 1),
	} {
		for range 2 {
			_, err = commitlog.OpenStream(ctx, js, config, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
		}
	}
	serveWith(t, js, worldsettings.Settings{})
	_, err = js.Publish(ctx, wire.AlertSubject("w", "X"), nil) // a roundtrip
	require.NoError(t, err)
	_, err = updates.NextMsg(50 * time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout)
}

// A world that does not exist gets the given settings, and cannot be changed.
func TestPlanSettings_NewWorld(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, worldsettings.Default())
	plan, err := worldsettings.MakePlan(ctx, js, "v", worldsettings.Settings{HistoryPerTown: 7})
	require.NoError(t, err)
	require.True(t, plan.New)
	require.Equal(t, worldsettings.Settings{HistoryPerTown: 7}.WithDefaults(worldsettings.Default()),
		plan.Settings)
	require.Empty(t, plan.Differences)
	_, err = worldsettings.Change(ctx, js, "v", worldsettings.Settings{HistoryPerTown: 7}, true)
	require.ErrorIs(t, err, commitlog.ErrNoWorld)
}
