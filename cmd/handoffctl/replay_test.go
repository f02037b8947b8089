package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	s := decode[summary](t, got.out)
	assert.Equal(t, len(all), s.Outcomes[refusedOutcome])
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
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	s := decode[summary](t, c.ok("replay", dir, "--concurrency", "4", "-o", "json"))
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
	assert.Equal(t, towns*each, decode[summary](t, got.out).Outcomes["executed"])
}

// A snapshot that cannot be put is a failure, which --update leaves.
func TestReplay_LowerDay(t *testing.T) {
	c := online(t)
	fixtures := talks(t, "north", 2)
	fixtures[1]["expect"] = map[string]any{"status": "stale"}
	got := c.run("replay", c.file(marshal(t, []any{fixtures[1], fixtures[0]})), "--update")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `failed: \S+#1 \(north 0\)\n  expected its snapshot to be put\n`+
		`  got      error EPOCH_REGRESSION \(409\)`, got.out)
	assert.Regexp(t, `(?m)^executed   1$`, got.out)
	assert.Regexp(t, `(?m)^refused    1$`, got.out)
	assert.Contains(t, got.out,
		"\n0 passed, 1 failed, 0 unchecked (they expect nothing)\n1 updated: ")
}

// Without an answer nothing is written.
func TestReplay_ServerIsAway(t *testing.T) {
	c := online(t)
	fixtures := marshal(t, talks(t, "north", 2))
	file := c.file(fixtures)
	got := c.run("replay", file, "--update", "--world", "elsewhere")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Regexp(t, `(?m)^not replayed  2$`, got.out)
	assert.Contains(t, got.err, "NO_RESPONDERS")
	assert.Equal(t, fixtures, written(t, file))
}

func TestPlayer_Step(t *testing.T) {
	t.Parallel()
	var lines, terminal strings.Builder
	p := &player{app: &app{err: &lines}, fixtures: make([]fixture, 2*progressEvery),
		line: &progressLine{}}
	for range p.fixtures {
		p.step()
	}
	assert.Equal(t, "1000 of 2000 replayed\n2000 of 2000 replayed\n", lines.String())
	p.line.w = &terminal
	p.step()
	p.line.clear()
	assert.Equal(t, "\r2001 of 2000 replayed\r"+strings.Repeat(" ", 21)+"\r", terminal.String())
}

func TestDifferences_Results(t *testing.T) {
	t.Parallel()
	same := jsontext.Value(`{"a": {"b": [1, 2]}, "c": null}`)
	assert.Nil(t, differences(nil, same))
	assert.Nil(t, differences(same, jsontext.Value(`{"c":null,"a":{"b":[1.0,2]}}`)))
	assert.Equal(t, []string{
		"/a/b: expected [1,2], got [2,1]", "/c: expected null, got none",
		"/d~1e: expected none, got 7",
	}, differences(same, jsontext.Value(`{"a": {"b": [2, 1]}, "d/e": 7}`)))
	assert.Contains(t, differences(jsontext.Value(`{"a": 1, "a": 2}`), same)[0],
		"the expectation cannot be compared: ")
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
	assert.Contains(t, got.out,
		"the bytes of the result: the same values, written in another way\n")
	assert.Contains(t, c.ok("replay", file, "--fresh", "--update"),
		`- /resultBytes: "{ \"schemaVersion\"`)
	assert.Equal(t, exact, written(t, file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	link := filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, os.Symlink(file, link))
	c.fails(exitUsage, "--update: "+link+" is named twice",
		"replay", "--fresh", "--update", file, link)
}

func TestRewrite_ChangedFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"handoff": 1}`), 0o600))
	read, err := parseFixtures(file, []byte(`{"handoff": 2}`))
	require.NoError(t, err)
	assert.ErrorContains(t, rewrite(file, []*fixture{&read[0]}), "has changed since it was read")
	assert.Equal(t, `{"handoff": 1}`, written(t, file))
}
