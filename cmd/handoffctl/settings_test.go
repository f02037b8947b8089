package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// A shorter history that would discard commits is refused with their number, and nothing is changed.
func TestSettings_Discard(t *testing.T) {
	c := online(t)
	js := c.streams()
	_, err := js.CreateStream(t.Context(),
		commitlog.StreamConfig("other", commitlog.DefaultSettings(), 1))
	require.NoError(t, err)
	for range 1003 {
		_, err = js.PublishAsync(wire.LogSubject("other", "busy"), []byte("{}"))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	settings := func(args ...string) []string {
		return append([]string{"--world", "other", "world", "settings"}, args...)
	}
	c.fails(exitFailed, "nothing is changed, since it would discard 3 messages of "+
		"WORLD_other_LOG (history-per-town)", settings("set", "history-per-town=1000")...)
	assert.Regexp(t, `history-per-town +10000\n`, c.ok(settings("get")...))
	assert.Regexp(t, `history-per-town +1000\n`,
		c.ok(settings("set", "history-per-town=1000", "--discard-history")...))
}
