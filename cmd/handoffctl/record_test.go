package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
)

// The handoffs of a world replay in fresh worlds, byte for byte, whatever their results.
func TestRecord_Replays(t *testing.T) {
	c := online(t)
	executed := c.handoff()
	unmet := c.run("new", "-o", "json", threatened, "accept-mission", "nowhere").out
	unknown := edited(t, executed, nil)
	var repeated answer
	for _, made := range []string{unmet, executed, executed,
		c.handoff(threatened, "advance-project", "wall-perimeter"), unknown} {
		got := c.pipe(made, "send", "-", "-o", "json")
		require.Equal(t, exitOK, got.status)
		repeated = decode[answer](t, got.out)
	}
	stale := c.handoff(threatened, "talk", "casual")
	c.ok("send", c.file(c.handoff(threatened, "talk", "morale-boost")))
	require.Equal(t, exitOK, c.pipe(stale, "send", "-", "--expect", "stale").status)
	c.ok("town", "put", c.file(string(newTown(t, "north", 3))))
	other := c.send(c.handoff("north", "talk", "casual"))
	failed := c.pipe(c.handoff(threatened, "advance-project", "bridge-east"), "send", "-", "-o", "json")
	require.Equal(t, exitFailed, failed.status)

	file := filepath.Join(t.TempDir(), "recorded.json")
	got := c.run("record", "--out", file)
	require.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, "9 fixtures in "+file+"\n", got.err)
	got = offlineOf(c).run("replay", file, "--fresh", "--strict", "-o", "json")
	require.Equal(t, exitOK, got.status, got.out+got.err)
	s := decode[summary](t, got.out)
	assert.Equal(t, []int{9, 0, 0}, []int{s.Passed, s.Failed, s.Unchecked})
	for status, n := range map[handoff.Status]int{
		handoff.Executed: 3, handoff.Duplicate: 3, handoff.Rejected: 1, handoff.Stale: 1,
		handoff.Failed: 1,
	} {
		assert.Equal(t, n, s.Outcomes[string(status)], status)
	}

	assert.Len(t, decode[[]runs.Fixture](t, c.ok("record", "--town", threatened)), 8)
	one := decode[[]runs.Fixture](t, c.ok("record", "--run", other.RunID))
	require.Len(t, one, 1)
	assert.Equal(t, string(other.Result), one[0].Expect.ResultBytes)
	again := decode[[]runs.Fixture](t, c.ok("record", "--run", repeated.RunID))
	require.Len(t, again, 2, "a duplicate comes behind the handoff that it repeats")
	assert.Equal(t, again[0].Handoff, again[1].Handoff)
	offlineOf(c).ok("replay", "--fresh", "--strict", c.file(c.ok("record", "--run", repeated.RunID)))
	signal := decode[struct {
		SignalID string `json:"signalId"`
	}](t, c.ok("pause", "--town", threatened, "-o", "json")).SignalID
	c.fails(exitFailed, "there is nothing to record", "record", "--run", signal)
	assert.Equal(t, "[\n]\n", c.ok("record", "--for", "1ms"), "nothing is judged meanwhile")
	got = c.run("record", "--world", "elsewhere")
	assert.NotEqual(t, exitOK, got.status)
}

// offlineOf is a cli without a server.
func offlineOf(c *cli) *cli {
	return &cli{t: c.t, env: map[string]string{"NATS_URL": "nats://127.0.0.1:1"}}
}

// A town may be misspelt, and other rules may have decided: the error says that there is nothing, and
// leaves no file.
func TestRecord_Nothing(t *testing.T) {
	rules := town.DefaultRules()
	rules.ProjectStep *= 2
	c := onlineWith(t, worldengine.Config{Rules: &rules})
	file := filepath.Join(t.TempDir(), "nothing.json")
	for _, which := range [][]string{nil, {"--town", "atlantis"}} {
		c.fails(exitFailed, "there is nothing to record", append([]string{"record", "--out", file}, which...)...)
		require.NoFileExists(t, file, which)
	}
	c.fails(exitRefused, "UNKNOWN_RUN", "record", "--out", file, "--run", "nope")
	c.send(c.handoff())
	c.fails(exitFailed, "left out: 1, a fresh world would answer otherwise", "record", "--out", file)
	require.NoFileExists(t, file)
}
