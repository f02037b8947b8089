package worldengine

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog/logtest"
	"worldengine/worldengine/wire"
)

// An engine that is opened with a lower limit reports the messages that it discards.
func TestBus_LowerLimit(t *testing.T) {
	t.Parallel()
	l := logtest.New(t)
	js := logtest.JetStream(l)
	open := func(limit int64) (kept uint64, log string) {
		var told bytes.Buffer
		e, err := Open(t.Context(), js.Conn(), js.Conn(), Config{
			Bus: true, BusLimit: limit,
			Logger: slog.New(slog.NewTextHandler(&told, nil)),
		})
		require.NoError(t, err)
		waitFollowed(t, e, 10)
		require.NoError(t, e.Close(context.Background()))
		stream, err := js.Stream(t.Context(), wire.EventStream("main"))
		require.NoError(t, err)
		info := stream.CachedInfo()
		require.Equal(t, limit, info.Config.MaxMsgs)
		return info.State.Msgs, told.String()
	}
	e, err := Open(t.Context(), js.Conn(), js.Conn(), Config{
		Bus: true, BusLimit: -1,
	})
	require.NoError(t, err)
	for n := range int64(10) {
		_, err := e.Runs().Append(t.Context(), "t", []runevents.Write{logtest.Told(n + 1)})
		require.NoError(t, err)
	}
	waitFollowed(t, e, 10)
	require.NoError(t, e.Close(context.Background()))
	const warning = "level=WARN msg=\"the oldest messages of a stream are over its limit and are " +
		"discarded\""
	for _, c := range []struct {
		limit int64
		kept  uint64
		told  string
	}{
		{-1, 10, ""}, {100, 10, ""}, {10, 10, ""},
		{7, 7, "stream=WORLD_main_RUNEVENTS messages=3 limit=7"},
		{7, 7, ""}, {-1, 7, ""}, {2, 2, "stream=WORLD_main_RUNEVENTS messages=5 limit=2"},
	} {
		kept, log := open(c.limit)
		require.Equal(t, c.kept, kept, "limit %d", c.limit)
		if c.told == "" {
			require.NotContains(t, log, warning, "limit %d", c.limit)
			continue
		}
		require.Contains(t, log, warning+" "+c.told, "limit %d", c.limit)
	}
	require.NoError(t, js.DeleteStream(t.Context(), wire.EventStream("main")))
	e = openEngine(t, l, func(c *Config) { c.Bus, c.BusLimit = true, -1 })
	page, err := e.Runs().Events(t.Context(), "run", 0, 0, 100)
	require.NoError(t, err)
	require.Len(t, page.Events, 10, "the log still has them")
}
