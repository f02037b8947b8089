package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

func TestWorldSettings(t *testing.T) {
	c := onlineWith(t, worldengine.Config{HistoryPerTown: 5000})
	text := c.ok("world", "settings", "get")
	assert.Regexp(t, `history-per-town +5000\n`, text)
	assert.Regexp(t, `apply +local\n`, text)
	c.ok("world", "settings", "set", "history-per-town=6000", "apply=plugin")
	type shown struct {
		Settings map[string]string `json:"settings"`
	}
	assert.Equal(t, map[string]string{
		"history-per-town": "6000", "apply": "plugin", "require-approval": "none",
		"compress": "events",
	}, decode[shown](t, c.ok("world", "settings", "get", "-o", "json")).Settings)

	for _, row := range []struct{ setting, says string }{
		{"history-per-town", "a setting is NAME=VALUE"},
		{"history-per-town=10", "history-per-town must be at least 1000, not 10"},
		{"history-per-town=many", "must be at least 1"},
		{"apply=magic", "not \"magic\""},
		{"compress=some", "compress must be events or all, not \"some\""},
		{"compress=", "compress must be events or all"},
		{"require-approval=MAGIC", "no type of proposals \"MAGIC\" to approve, but " +
			"MAYOR_ACCEPT_MISSION"},
		{"colour=red", "there is no setting \"colour\" of a world, but history-per-town"},
	} {
		got := c.run("world", "settings", "set", row.setting)
		assert.Equal(t, exitUsage, got.status, row.setting)
		assert.Contains(t, got.err, row.says)
	}
	got := c.run("world", "settings", "get", "--world", "nowhere")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Contains(t, got.err, "NO_WORLD")
}

// A shorter history that would discard commits is refused with their number, and nothing is changed.
func TestWorldSettingsThatDiscard(t *testing.T) {
	c := online(t)
	js := c.streams()
	_, err := js.CreateStream(t.Context(),
		commitlog.LogStream("other", commitlog.DefaultSettings(), 1))
	require.NoError(t, err)
	for range 1003 {
		_, err = js.PublishAsync(wire.LogSubject("other", "busy"), []byte("{}"))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	settings := func(args ...string) []string {
		return append([]string{"--world", "other", "world", "settings"}, args...)
	}
	got := c.run(settings("set", "history-per-town=1000")...)
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing is changed, since it would discard 3 messages of "+
		"WORLD_other_LOG (history-per-town)")
	assert.Regexp(t, `history-per-town +10000\n`, c.ok(settings("get")...))
	assert.Regexp(t, `history-per-town +1000\n`,
		c.ok(settings("set", "history-per-town=1000", "--discard-history")...))
}
