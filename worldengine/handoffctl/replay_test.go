package handoffctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/tool/replay"
	"worldengine/worldengine/wire"
)

// talks returns the fixtures of a town that is put at a day and talked to so many times, each
// handoff for the state that the one before leaves.
func talks(t *testing.T, id string, n int) []map[string]any {
	t.Helper()
	fixtures := make([]map[string]any, n)
	for i := range fixtures {
		snapshot := newTown(t, id, int64(i))
		fixtures[i] = map[string]any{
			"name": fmt.Sprintf("%s %d", id, i), "snapshot": snapshot, "handoff": talk(t, snapshot),
			"expect": map[string]any{"status": "executed", "reasonCode": "EXECUTED"},
		}
	}
	return fixtures
}

// talk returns a handoff for a state.
func talk(t *testing.T, snapshot jsontext.Value) jsontext.Value {
	t.Helper()
	c := &cli{t: t}
	id := decode[struct {
		TownID string `json:"townId"`
	}](t, string(snapshot)).TownID
	return jsontext.Value(c.handoff(id, "talk", "casual", "--snapshot", c.file(string(snapshot))))
}

// written returns the content of a file.
func written(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// A refusal that is not expected is a failure, with its details.
func TestReplay_Refusals(t *testing.T) {
	c := online(t)
	all := decode[[]map[string]any](t, written(t, vectors("handoffs.invalid.json")))
	got := c.run("replay", vectors("handoffs.invalid.json"), "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	s := decode[replay.Report](t, got.out)
	assert.Equal(t, len(all), s.Outcomes[replay.Refused])
	require.Len(t, s.Failures, len(all))
	assert.Contains(t, s.Failures[0].Got, "error SCHEMA_VALIDATION_FAILED (400)")
	assert.NotEmpty(t, s.Failures[0].Differs)

	for _, fixture := range all {
		fixture["expect"] = map[string]any{"error": "SCHEMA_VALIDATION_FAILED"}
	}
	got = c.pipe(marshal(t, all), "replay", "-")
	assert.Equal(t, exitOK, got.status, got.out)
}

func TestReplay_Directory(t *testing.T) {
	c := online(t)
	dir, valid := t.TempDir(), written(t, vectors("handoffs.valid.json"))
	for name, content := range map[string]string{
		"b.json": valid, "a.json": c.handoff(), "notes.txt": "no fixture",
		"._a.json": "of another system", ".git/hook.json": "no fixture",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := decode[replay.Report](t, c.ok("replay", dir, "--concurrency", "4", "-o", "json"))
	count := len(decode[[]any](t, valid))
	assert.Equal(t, count+1, s.Replayed)
	assert.Equal(t, 1, s.Outcomes["executed"])
	assert.Equal(t, count, s.Outcomes["rejected"]+s.Outcomes["stale"], "other towns are here")
}

func TestReplay_OrderWithinATown(t *testing.T) {
	c := online(t)
	var mixed []map[string]any
	const towns, each = 6, 8
	lists := make([][]map[string]any, towns)
	for i := range lists {
		lists[i] = talks(t, fmt.Sprintf("town-%d", i), each)
	}
	for n := range each {
		for i := range lists {
			mixed = append(mixed, lists[i][n])
		}
	}
	got := c.pipe(marshal(t, mixed), "replay", "-", "--concurrency", "4", "-o", "json")
	require.Equal(t, exitOK, got.status, got.out)
	assert.Equal(t, towns*each, decode[replay.Report](t, got.out).Outcomes["executed"])
}

func TestApp_Replayed(t *testing.T) {
	t.Parallel()
	var lines, terminal strings.Builder
	a, line, all := &app{err: &lines}, &progressLine{}, 2*progressInterval
	for done := range all {
		a.replayed(line, done+1, all)
	}
	assert.Equal(t, "1000 of 2000 replayed\n2000 of 2000 replayed\n", lines.String())
	line.w = &terminal
	a.replayed(line, all+1, all)
	line.clear()
	assert.Equal(t, "\r2001 of 2000 replayed\r"+strings.Repeat(" ", 21)+"\r", terminal.String())
}

// The bytes of a result are compared, too, if its JSON is the expected one.
func TestReplayUpdate_Bytes(t *testing.T) {
	c := offline(t)
	f := talks(t, "north", 1)[0]
	f["expect"] = map[string]any{"resultBytes": "{}"}
	file := c.file(marshal(t, []any{f}))
	c.ok("replay", file, "--fresh", "--update")
	exact := written(t, file)
	spaced := strings.Replace(exact, `{\"schemaVersion\"`, `{ \"schemaVersion\"`, 1)
	require.NotEqual(t, exact, spaced)
	require.NoError(t, os.WriteFile(file, []byte(spaced), 0o640))
	require.NoError(t, os.Chmod(file, 0o640))
	got := c.run("replay", file, "--fresh")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "expected the bytes of the result given\n")
	assert.Regexp(t, `- /resultBytes: "\{ .*\n +\+ /resultBytes: "\{`, got.out)
	assert.Contains(t, c.ok("replay", file, "--fresh", "--update"),
		`- /resultBytes: "{ \"schemaVersion\"`)
	assert.Equal(t, exact, written(t, file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	link := filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, os.WriteFile(file, []byte(spaced), 0o640))
	c.fails(exitUsage, "--update: "+link+" has changed since it was read, or is named twice",
		"replay", "--fresh", "--update", file, link)
	assert.Equal(t, exact, written(t, file))
}

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
	s := decode[replay.Report](t, got.out)
	assert.Equal(t, []int{9, 0, 0}, []int{s.Passed, s.Failed, s.Unchecked})
	for status, n := range map[handoff.Status]int{
		handoff.Executed: 3, handoff.Duplicate: 3, handoff.Rejected: 1, handoff.Stale: 1,
		handoff.Failed: 1,
	} {
		assert.Equal(t, n, s.Outcomes[string(status)], status)
	}

	assert.Len(t, decode[[]fixture.Fixture](t, c.ok("record", "--town", threatened)), 8)
	one := decode[[]fixture.Fixture](t, c.ok("record", "--run", other.RunID))
	require.Len(t, one, 1)
	assert.Equal(t, string(other.Result), one[0].Expect.ResultBytes)
	again := decode[[]fixture.Fixture](t, c.ok("record", "--run", repeated.RunID))
	require.Len(t, again, 2, "a duplicate comes behind the handoff that it repeats")
	assert.JSONEq(t, string(again[0].Handoff), string(again[1].Handoff))
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
	return serverAt(c.t, "nats://127.0.0.1:1")
}

// record --for does not wait for a server that is gone: then Ctrl-C could not end it.
func TestRecord_ServerGone(t *testing.T) {
	c := faked(t, nil)
	nc := c.connect()
	sub, err := nc.Subscribe(wire.Subject("main", wire.EventList), func(msg *nats.Msg) {
		_ = msg.Respond([]byte(`{"commits": [], "cursor": "7"}`))
	})
	require.NoError(t, err)
	require.NoError(t, sub.AutoUnsubscribe(1))
	require.NoError(t, nc.Flush())
	got := c.run("record", "--for", "1ms", "--timeout", "500ms")
	require.Equal(t, exitUnavailable, got.status, got)
}

// A town may be misspelt, and other rules may have decided: the error says that there is nothing, and
// leaves no file.
func TestRecord_Nothing(t *testing.T) {
	rules := town.DefaultRules()
	rules.ProjectStep *= 2
	c := onlineWith(t, engine.Config{Rules: &rules})
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
