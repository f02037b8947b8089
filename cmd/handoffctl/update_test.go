package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written returns the content of a file.
func written(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// The file is written anew, one fixture on each line; the second run is green and writes nothing.
func TestReplayUpdate_WritesTheAnswers(t *testing.T) {
	c := offline(t)
	snapshot := string(newTown(t, "north", 1))
	h := strings.TrimSpace(string(talk(t, newTown(t, "north", 1))))
	passes := `{"handoff":` + h + `,"snapshot":` + snapshot + `,"expect":{"status":"executed"}}`
	duplicate := `,"expect":{"status":"duplicate"`
	dir := t.TempDir()
	files := map[string][2]string{ // the beginning of a file before and after
		"array.json": {
			" [\n" + passes + ", {\"handoff\":" + h + `,"expect":{"status":"executed"}}]`,
			"[\n" + passes + ",\n{\"handoff\":" + h + duplicate + "}}\n]\n",
		},
		"indented.json": {
			"{\r\n\t\"expect\": {\"reasonCode\":\"EXECUTED\",\t\"status\": \"stale\"},\r\n" +
				"\t\"snapshot\": " + snapshot + ",\n\"handoff\": " + h +
				`, "comment": 1.50, "name": "wrong"}`,
			`[` + "\n" + `{"name":"wrong","comment":1.50,"handoff":` + h + `,"snapshot":` + snapshot +
				`,"expect":{"status":"executed","reasonCode":"EXECUTED"}}` + "\n]\n",
		},
		"lines.jsonl": {
			passes + "\n" + `{"handoff": ` + h + `, "expect": {"error": "OVERLOADED"}}` + "\n",
			passes + "\n" + `{"handoff":` + h + duplicate +
				`,"reasonCode":"DUPLICATE_HANDOFF","resultBytes":"{`,
		},
		"refused.json": {
			`{"handoff": {}, "expect": {"status": "executed"}}`,
			"[\n" + `{"handoff":{},"expect":{"error":"SCHEMA_VALIDATION_FAILED"}}` + "\n]\n",
		},
		"twice.json": { // a handoff by itself, with a member that is there twice
			`{"a": "\u0061", "a": 1e0}`,
			"[\n" + `{"handoff":{"a":"\u0061","a":1e0},"expect":{"error":"INVALID_JSON"}}` + "\n]\n",
		},
		"unchecked.json": {
			"{\n  \"handoff\": " + h + "\n}\n",
			"[\n{\"handoff\":" + h + `,"expect":{"status":"rejected","reasonCode":"UNKNOWN_TOWN",`,
		},
		"whole.json": {
			`{"handoff": ` + h + `, "expect": {"result": null}}`,
			"[\n{\"handoff\":" + h + `,"expect":{"result":{"schemaVersion":"execution-result.v1",`,
		},
	}
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content[0]), 0o640))
	}
	got := c.run("replay", dir, "--fresh", "--update")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	assert.Contains(t, got.out, "\n2 passed, 0 failed, 0 unchecked (they expect nothing)\n7 "+
		"updated: ")
	assert.Contains(t, got.out, filepath.Join(dir, "indented.json")+" (wrong) expects what was "+
		"answered:\n- /status: \"stale\"\n+ /status: \"executed\"\n\n")
	after := map[string]string{}
	for name, content := range files {
		after[name] = written(t, filepath.Join(dir, name))
		assert.True(t, strings.HasPrefix(after[name], content[1]), "%s has\n%s\nnot\n%s", name,
			after[name], content[1])
	}
	info, err := os.Stat(filepath.Join(dir, "twice.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	got = c.run("replay", dir, "--fresh", "--update", "--strict")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	assert.Contains(t, got.out, "\n9 passed, 0 failed, 0 unchecked (they expect nothing)\n")
	assert.NotContains(t, got.out, "updated")
	for name := range files {
		assert.Equal(t, after[name], written(t, filepath.Join(dir, name)), name)
	}
}

// Of the bytes of a result people see the JSON, or the bytes if the JSON is the same.
func TestReplayUpdateOfBytes(t *testing.T) {
	c := offline(t)
	file := c.file(marshal(t, talks(t, "north", 1)))
	require.Equal(t, exitOK, c.run("replay", file, "--fresh", "--update").status)
	whole := strings.Replace(written(t, file), `"expect":{`, `"expect":{"resultBytes":"{}",`, 1)
	require.NoError(t, os.WriteFile(file, []byte(whole), 0o600))
	got := c.run("replay", file, "--fresh", "--update", "-o", "json")
	require.Equal(t, exitOK, got.status, got.err)
	s := decode[summary](t, got.out)
	require.Len(t, s.Updates, 1)
	assert.Equal(t, 1, s.Updated)
	assert.Contains(t, s.Updates[0].Difference,
		`+ /resultBytes/schemaVersion: "execution-result.v1"`)

	exact := written(t, file)
	spaced := strings.Replace(exact, `{\"schemaVersion\"`, `{ \"schemaVersion\"`, 1)
	require.NotEqual(t, exact, spaced)
	require.NoError(t, os.WriteFile(file, []byte(spaced), 0o600))
	got = c.run("replay", file, "--fresh", "--update")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, `- /resultBytes: "{ \"schemaVersion\"`)
	assert.Equal(t, exact, written(t, file))
}

// A snapshot that cannot be put stays a failure, and nothing is written without an answer.
func TestReplayUpdateLeavesWhatItCannotKnow(t *testing.T) {
	c := online(t)
	fixtures := talks(t, "north", 2)
	fixtures[1]["expect"] = map[string]any{"status": "stale"}
	// the second snapshot lowers the day
	file := c.file(marshal(t, []any{fixtures[1], fixtures[0]}))
	got := c.run("replay", file, "--update")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "\n0 passed, 1 failed, 0 unchecked (they expect nothing)\n1 "+
		"updated: ")
	assert.Contains(t, got.out, "its snapshot to be put")

	before := marshal(t, fixtures)
	file = c.file(before)
	assert.Equal(t, exitUnavailable, c.run("replay", file, "--update", "--world",
		"elsewhere").status)
	assert.Equal(t, before, written(t, file))
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

func TestReplayUpdateRefusesWhatMakesNoSense(t *testing.T) {
	c := offline(t)
	file := c.file(marshal(t, talks(t, "north", 1)))
	link := filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, os.Symlink(file, link))
	for name, test := range map[string]struct {
		args  []string
		wants string
	}{
		"standard input": {[]string{"-"},
			"--update writes into the files of the fixtures: name files, not -"},
		"a report":  {[]string{file, "--junit", "report.xml"}, "--junit reports what differs"},
		"twice":     {[]string{file, file}, "--update: " + file + " is named twice"},
		"by a link": {[]string{file, link}, "--update: " + link + " is named twice"},
	} {
		got := c.pipe("{}", append([]string{"replay", "--fresh", "--update"}, test.args...)...)
		assert.Equal(t, exitUsage, got.status, name)
		assert.Contains(t, got.err, "handoffctl: "+test.wants, name)
		assert.Empty(t, got.out, name)
	}
}
