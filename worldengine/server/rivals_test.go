package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/wire"
)

// Reading leaves nothing behind: a list or a scan is a consumer for as long as it lasts.
func TestReadingLeavesNoConsumers(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	o := c.send(marshalled(t, propose(c.put(snapshot("t"), ""), handoff.TalkToTownsfolk, "casual")))
	for range 20 {
		require.Len(t, list(c), 1)
		require.Len(t, c.listRuns(map[string]any{"limit": 5}), 1)
		require.NotEmpty(t, c.events(o.runID))
	}
	js := c.streams()
	s, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, info.State.Consumers, 1, "the reader of signals")
}
