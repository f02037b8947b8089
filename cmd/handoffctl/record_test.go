package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/client"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
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

	file := filepath.Join(t.TempDir(), "recorded.json")
	got := c.run("record", "--out", file)
	require.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, "8 fixtures in "+file+"\n", got.err)
	got = offlineOf(c).run("replay", file, "--fresh", "--strict", "-o", "json")
	require.Equal(t, exitOK, got.status, got.out+got.err)
	s := decode[summary](t, got.out)
	assert.Equal(t, []int{8, 0, 0}, []int{s.Passed, s.Failed, s.Unchecked})
	for status, n := range map[handoff.Status]int{
		handoff.Executed: 3, handoff.Duplicate: 3, handoff.Rejected: 1, handoff.Stale: 1,
	} {
		assert.Equal(t, n, s.Outcomes[string(status)], status)
	}

	assert.Len(t, decode[[]runs.Fixture](t, c.ok("record", "--town", threatened)), 7)
	one := decode[[]runs.Fixture](t, c.ok("record", "--run", other.RunID))
	require.Len(t, one, 1)
	assert.Equal(t, string(other.Result), one[0].Expect.ResultBytes)
	again := decode[[]runs.Fixture](t, c.ok("record", "--run", repeated.RunID))
	require.Len(t, again, 2, "a duplicate comes behind the handoff that it repeats")
	assert.Equal(t, again[0].Handoff, again[1].Handoff)
	assert.Equal(t, "[\n]\n", c.ok("record", "--for", "1ms"), "nothing is judged meanwhile")
	got = c.run("record", "--world", "elsewhere")
	assert.NotEqual(t, exitOK, got.status)
}

// offlineOf is a cli without a server.
func offlineOf(c *cli) *cli {
	return &cli{t: c.t, env: map[string]string{"NATS_URL": "nats://127.0.0.1:1"}}
}

// The fixtures of run.get replay in fresh worlds, too, each run by itself.
func TestRunFixtures_Replay(t *testing.T) {
	c := online(t)
	nc := c.connect()
	type reply struct {
		Fixtures []runs.Fixture `json:"fixtures"`
		LeftOut  string         `json:"leftOut"`
	}
	ask := func(runID string) (reply, []byte) {
		msg, err := client.New(nc, "").Request(t.Context(), wire.RunGet,
			[]byte(`{"runId":"`+runID+`","fixtures":true}`)) // again while the events are behind
		require.NoError(t, err)
		_, err = schemas.Parse(schemas.RunGetReply, msg.Data, schemas.Limits{})
		require.NoError(t, err)
		return decode[reply](t, string(msg.Data)), msg.Data
	}
	executed, stale := c.handoff(), c.handoff(threatened, "talk", "casual")
	for _, send := range []struct {
		body     string
		status   handoff.Status
		fixtures int
	}{
		{c.run("new", "-o", "json", threatened, "accept-mission", "nowhere").out,
			handoff.Rejected, 1},
		{c.handoff(threatened, "advance-project", "bridge-east"), handoff.Failed, 1},
		{executed, handoff.Executed, 1}, {executed, handoff.Duplicate, 2},
		{stale, handoff.Stale, 1},
	} {
		sent := c.send(send.body)
		got, raw := ask(sent.RunID)
		require.Len(t, got.Fixtures, send.fixtures, "%s: %s", send.status, got.LeftOut)
		require.Equal(t, send.status, got.Fixtures[send.fixtures-1].Expect.Status)
		require.Equal(t, string(sent.Result), got.Fixtures[send.fixtures-1].Expect.ResultBytes)
		var parts struct {
			Fixtures jsontext.Value `json:"fixtures"`
		}
		require.NoError(t, json.Unmarshal(raw, &parts))
		replayed := offlineOf(c).run("replay", c.file(string(parts.Fixtures)),
			"--fresh", "--strict")
		require.Equal(t, exitOK, replayed.status, replayed.out+replayed.err)
	}

	signal := decode[struct {
		SignalID string `json:"signalId"`
	}](t, c.ok("pause", "--town", threatened, "-o", "json"))
	got, _ := ask(signal.SignalID)
	require.Empty(t, got.Fixtures)
	require.Equal(t, "no handoff was judged in the run", got.LeftOut)
}

// A handoff that other amounts of the rules decided is left out.
func TestRunFixtures_OtherRules(t *testing.T) {
	rules := town.DefaultRules()
	rules.ProjectStep *= 2
	c := onlineWith(t, worldengine.Config{Rules: &rules})
	sent := c.send(c.handoff())
	nc := c.connect()
	msg, err := nc.Request("worldengine.v1.main.run.get",
		[]byte(`{"runId":"`+sent.RunID+`","fixtures":true}`), time.Minute)
	require.NoError(t, err)
	require.Contains(t, string(msg.Data),
		`"fixtures":[],"leftOut":"a fresh world would answer otherwise`)
}

// A town may be misspelt: the error says that there is nothing, and leaves no file.
func TestRecord_Nothing(t *testing.T) {
	c := online(t)
	file := filepath.Join(t.TempDir(), "nothing.json")
	for _, which := range [][]string{nil, {"--town", "atlantis"}} {
		c.fails(exitFailed, "there is nothing to record", append([]string{"record", "--out", file}, which...)...)
		require.NoFileExists(t, file, which)
	}
	c.fails(exitRefused, "UNKNOWN_RUN", "record", "--out", file, "--run", "nope")
	require.NoFileExists(t, file)
}
