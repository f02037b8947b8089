package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
)

func TestWorldSettings(t *testing.T) {
	c := onlineWith(t, worldengine.Config{HistoryPerTown: 5000})
	text := c.ok("world", "settings", "get")
	assert.Regexp(t, `history-per-town +5000\n`, text)
	assert.Regexp(t, `apply +local\n`, text)
	c.ok("world", "settings", "set", "history-per-town=6000", "runevents-retention=48h",
		"apply=plugin")
	type shown struct {
		Settings map[string]string `json:"settings"`
	}
	assert.Equal(t, map[string]string{
		"history-per-town": "6000", "runevents-retention": "48h0m0s",
		"runevents-limit": "10000000", "apply": "plugin", "require-approval": "none",
		"compress": "events",
	}, decode[shown](t, c.ok("world", "settings", "get", "-o", "json")).Settings)

	for _, row := range []struct{ setting, says string }{
		{"history-per-town", "a setting is NAME=VALUE"},
		{"history-per-town=10", "history-per-town must be at least 1000, not 10"},
		{"history-per-town=many", "must be at least 1"},
		{"runevents-retention=1ms", "must be a duration of at least 1s"},
		{"runevents-limit=0", "at least 1, or -1"},
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

// What would discard something is refused with how much, and nothing is changed.
func TestWorldSettingsThatDiscard(t *testing.T) {
	c := online(t)
	for _, talk := range []string{"casual", "casual"} {
		c.pipe(c.ok("new", threatened, "TOWNSFOLK_TALK", talk), "send", "-")
	}
	require.Eventually(t, func() bool {
		got := c.run("world", "settings", "set", "runevents-limit=4")
		return got.status == exitFailed // once more than three events have followed
	}, 30*time.Second, 50*time.Millisecond)
	got := c.run("world", "settings", "set", "runevents-limit=3")
	assert.Regexp(t,
		`nothing is changed, since it would discard [0-9]+ messages of WORLD_main_RUNEVENTS \(runevents-limit\)`, got.err)
	assert.Regexp(t, `runevents-limit +10000000\n`, c.ok("world", "settings", "get"))
	assert.Regexp(t, `runevents-limit +3\n`, c.ok("world", "settings", "set", "runevents-limit=3",
		"--discard-history"))
}
