package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// written returns what a file has.
func written(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// Each file keeps its form, and what passed its very bytes; the second run is green and writes
// nothing.
func TestReplayUpdateWritesWhatWasAnswered(t *testing.T) {
	c := offline(t)
	snapshot := string(newTown(t, "north", 1))
	h := strings.TrimSpace(string(talk(t, newTown(t, "north", 1))))
	passes := `{ "handoff":` + h + `,"snapshot":` + snapshot + `,  "expect":{"status":"executed"}}`
	again := `{ "handoff":` + h + `,  "expect":{"status":"executed"}}`
	indented := strings.Join([]string{
		"{", "\t\"name\": \"wrong\",", "\t\"snapshot\": " + snapshot + ",",
		"\t\"handoff\": " + h + ",",
		"\t\"expect\": {", "\t\t\"reasonCode\": \"EXECUTED\",", "\t\t\"status\":   \"%s\"", "\t},",
		"\t\"comment\": 1.50", "}", "",
	}, "\r\n")
	dir := t.TempDir()
	files := map[string][2]string{ // what a file has before and after
		"array.json": {
			"[\n " + passes + ",\n " + again + "\n]",
			"[\n " + passes + ",\n " + strings.Replace(again, `"executed"`, `"duplicate"`, 1) +
				"\n]",
		},
		"indented.json": {fmt.Sprintf(indented, "stale"), fmt.Sprintf(indented, "executed")},
		"lines.jsonl": {
			passes + "\n" + `{"handoff": ` + h + `, "expect": {"error": "OVERLOADED"}}` + "\n",
			passes + "\n" + `{"handoff": ` + h +
				`, "expect": {"status": "duplicate", "reasonCode": "DUPLICATE_HANDOFF", "resultBytes": `,
		},
		"refused.json": {
			`{"handoff": {}, "expect": {"status": "executed"}}`,
			`{"handoff": {}, "expect": {"error": "SCHEMA_VALIDATION_FAILED"}}`,
		},
		"alone.json": {"{}", `{"handoff":{},"expect":{"error":"SCHEMA_VALIDATION_FAILED"}}`},
		"unchecked.json": {
			"{\n  \"handoff\": " + h + "\n}\n",
			"{\n  \"handoff\": " + h + ",\n  \"expect\": {\n    \"status\": \"rejected\",\n    " +
				"\"reasonCode\": \"UNKNOWN_TOWN\",\n    \"resultBytes\": ",
		},
		"whole.json": {
			"{\n  \"handoff\": " + h + ",\n  \"expect\": {\"result\": null}\n}\n",
			"{\n  \"handoff\": " + h + ",\n  \"expect\": {\"result\": {\"schemaVersion\": " +
				"\"execution-result.v1\", ",
		},
	}
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content[0]), 0o640))
	}
	got := c.run("replay", dir, "--fresh", "--update")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	assert.Contains(t, got.out, "\n2 passed, 0 failed, 0 unchecked (they expect nothing)\n7 "+
		"updated: ")
	assert.Contains(t, got.out, "--- "+filepath.Join(dir, "indented.json")+
		" (wrong)\n+++ answered\n@@ -1,4 +1,4 @@\n {\n"+
		"-  \"status\": \"stale\",\n+  \"status\": \"executed\",\n   \"reasonCode\": "+
		"\"EXECUTED\"\n }\n")
	after := map[string]string{}
	for name, content := range files {
		after[name] = written(t, filepath.Join(dir, name))
		assert.True(t, strings.HasPrefix(after[name], content[1]), "%s has\n%s\nnot\n%s", name,
			after[name], content[1])
	}
	info, err := os.Stat(filepath.Join(dir, "alone.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	got = c.run("replay", dir, "--fresh", "--update", "--strict")
	require.Equal(t, outcome{exitOK, got.out, ""}, got)
	assert.Contains(t, got.out, "\n9 passed, 0 failed, 0 unchecked (they expect nothing)\n")
	assert.NotContains(t, got.out, "updated")
	for name := range files {
		assert.Equal(t, after[name], written(t, filepath.Join(dir, name)), name)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, len(files), "no file is left over")
}

// Of the bytes of a result people see the JSON, or the bytes where the JSON is the same.
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
		"\n-  \"resultBytes\": {}\n+  \"resultBytes\": {\n+    \"schemaVersion\": ")

	exact := written(t, file)
	spaced := strings.Replace(exact, `{\"schemaVersion\"`, `{ \"schemaVersion\"`, 1)
	require.NotEqual(t, exact, spaced)
	require.NoError(t, os.WriteFile(file, []byte(spaced), 0o600))
	got = c.run("replay", file, "--fresh", "--update")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, `-  "resultBytes": "{ \"schemaVersion\"`)
	assert.Equal(t, exact, written(t, file))
}

// What cannot be expected stays a failure, and nothing is written that was not answered.
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

func TestUnified(t *testing.T) {
	t.Parallel()
	lines := func(text string) string { return strings.ReplaceAll(text, " ", "\n") + "\n" }
	assert.Empty(t, unified("a\n", "a\n", "x", "y"))
	assert.Equal(t, "--- x\n+++ y\n@@ -0,0 +1,1 @@\n+a\n", unified("", "a\n", "x", "y"))
	assert.Equal(t, "--- x\n+++ y\n@@ -1,1 +0,0 @@\n-a\n", unified("a", "", "x", "y"))
	assert.Equal(t, "--- x\n+++ y\n"+
		"@@ -3,7 +3,7 @@\n c\n d\n e\n-f\n+F\n g\n h\n i\n"+
		"@@ -13,4 +13,5 @@\n m\n n\n o\n+O\n p\n",
		unified(lines("a b c d e f g h i j k l m n o p"),
			lines("a b c d e F g h i j k l m n o O p"), "x", "y"))
}
