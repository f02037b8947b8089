package commitlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/wire"
)

// newWorld makes the streams of a world with settings, and three messages on one subject of each.
func newWorld(t *testing.T, s commitlog.Settings) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(natstest.Connect(t))
	require.NoError(t, err)
	log := commitlog.LogStream("w", s, 1)
	events := commitlog.EventStream("w", s, 1)
	for _, config := range []jetstream.StreamConfig{log, events} {
		_, err := js.CreateStream(t.Context(), config)
		require.NoError(t, err)
	}
	for range 3 {
		for _, subject := range []string{wire.LogSubject("w", "t"),
			wire.EventSubject("w", "t", "run-1")} {
			_, err := js.Publish(t.Context(), subject, nil)
			require.NoError(t, err)
		}
	}
	return js
}

// A change of the settings of a world says what it discards, is refused where that was not
// accepted, and then holds for its streams and for each server that starts.
func TestTheSettingsOfAWorldChange(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	first := commitlog.DefaultSettings()
	first.HistoryPerTown, first.EventLimit = 100, 50
	js := newWorld(t, first)

	served, err := commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{}, false)
	require.NoError(t, err)
	require.Equal(t, first, served, "a server that is given none has the world's")
	_, err = commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{EventLimit: 60}, false)
	require.ErrorContains(t, err, "--runevents-limit 60, and the world has 50")
	served, err = commitlog.AgreeSettings(ctx, js, "w", commitlog.Settings{EventLimit: 60}, true)
	require.NoError(t, err)
	require.Equal(t, int64(60), served.EventLimit)

	lower := commitlog.Settings{HistoryPerTown: 1, EventLimit: 2}
	_, err = commitlog.ChangeSettings(ctx, js, "w", lower, false)
	var refused *commitlog.SettingsError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []commitlog.Discard{
		{Stream: wire.LogStream("w"), Setting: commitlog.HistorySetting, Messages: 2},
		{Stream: wire.EventStream("w"), Setting: commitlog.EventLimitSetting, Messages: 1},
	}, refused.Discards)
	stored := func(stream string) *jetstream.StreamInfo {
		s, err := js.Stream(ctx, stream)
		require.NoError(t, err)
		return s.CachedInfo()
	}
	require.Equal(t, uint64(3), stored(wire.LogStream("w")).State.Msgs, "nothing was discarded")

	higher := commitlog.Settings{
		EventLimit: 70, EventRetention: time.Hour, Compress: commitlog.CompressAll}
	plan, err := commitlog.ChangeSettings(ctx, js, "w", higher, false)
	require.NoError(t, err, "nothing is as old as that")
	require.Empty(t, plan.Discards)
	require.Len(t, plan.Differences, 3)
	plan, err = commitlog.ChangeSettings(ctx, js, "w", lower, true)
	require.NoError(t, err)
	require.Equal(t, refused.Discards, plan.Discards)
	log, events := stored(wire.LogStream("w")), stored(wire.EventStream("w"))
	require.Equal(t, uint64(1), log.State.Msgs)
	require.Equal(t, uint64(2), events.State.Msgs)
	require.Equal(t, time.Hour, events.Config.MaxAge)
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
	plan, err := commitlog.PlanSettings(ctx, js, "v", commitlog.Settings{EventLimit: 7})
	require.NoError(t, err)
	require.True(t, plan.New)
	require.Equal(t, commitlog.Settings{EventLimit: 7}.Or(commitlog.DefaultSettings()),
		plan.Settings)
	require.Empty(t, plan.Differences)
	_, err = commitlog.ChangeSettings(ctx, js, "v", commitlog.Settings{EventLimit: 7}, true)
	require.ErrorIs(t, err, commitlog.ErrNoWorld)
}
