package commitlog_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 12) }

// newWorld makes the log of a world with settings, and three messages on one subject.
func newWorld(t *testing.T, s commitlog.Settings) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), commitlog.StreamConfig("w", s, 1))
	require.NoError(t, err)
	for range 3 {
		_, err := js.Publish(t.Context(), wire.LogSubject("w", "t"), nil)
		require.NoError(t, err)
	}
	return js
}

// A change of settings lists the messages that it discards, is refused unless that is accepted, and
// then holds for the world's streams and for each server that starts.
func TestChangeSettings(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first := commitlog.DefaultSettings()
	first.HistoryPerTown = 100
	js := newWorld(t, first)

	served, err := commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{}, false)
	require.NoError(t, err)
	require.Equal(t, first, served, "a server that is given none has the world's")
	_, err = commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{HistoryPerTown: 60}, false)
	require.ErrorContains(t, err, "--history-per-town 60, and the world has 100")
	served, err = commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{HistoryPerTown: 60}, true)
	require.NoError(t, err)
	require.Equal(t, int64(60), served.HistoryPerTown)

	lower := commitlog.Settings{HistoryPerTown: 1}
	_, err = commitlog.ChangeSettings(ctx, js, "w", lower, false)
	var refused *commitlog.SettingsError
	require.ErrorAs(t, err, &refused)
	require.EqualValues(t, 2, refused.Discards)
	stored := func() *jetstream.StreamInfo {
		s, err := js.Stream(ctx, wire.LogStream("w"))
		require.NoError(t, err)
		return s.CachedInfo()
	}
	require.Equal(t, uint64(3), stored().State.Msgs, "nothing was discarded")

	higher := commitlog.Settings{HistoryPerTown: 200, Compress: commitlog.CompressAll}
	plan, err := commitlog.ChangeSettings(ctx, js, "w", higher, false)
	require.NoError(t, err, "it discards nothing")
	require.Zero(t, plan.Discards)
	require.Len(t, plan.Differences, 2)
	plan, err = commitlog.ChangeSettings(ctx, js, "w", lower, true)
	require.NoError(t, err)
	require.Equal(t, refused.Discards, plan.Discards)
	log := stored()
	require.Equal(t, uint64(1), log.State.Msgs)
	require.Equal(t, commitlog.DuplicateWindow, log.Config.Duplicates)
	require.Equal(t, jetstream.S2Compression, log.Config.Compression)
	want := lower.Or(higher).Or(first)
	require.Equal(t, want, commitlog.SettingsOf(log.Config.Metadata))
	served, err = commitlog.AgreeSettings(ctx, js, "w", want, false)
	require.NoError(t, err)
	require.Equal(t, want, served)
}

// A world that does not exist gets the given settings, and cannot be changed.
func TestPlanSettings_NewWorld(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), newWorld(t, commitlog.DefaultSettings())
	plan, err := commitlog.PlanSettings(ctx, js, "v", commitlog.Settings{HistoryPerTown: 7})
	require.NoError(t, err)
	require.True(t, plan.New)
	require.Equal(t, commitlog.Settings{HistoryPerTown: 7}.Or(commitlog.DefaultSettings()),
		plan.Settings)
	require.Empty(t, plan.Differences)
	_, err = commitlog.ChangeSettings(ctx, js, "v", commitlog.Settings{HistoryPerTown: 7}, true)
	require.ErrorIs(t, err, commitlog.ErrNoWorld)
}
