package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each file has an empty world: what one file leaves does not change how another ends, and a
// snapshot of an earlier day goes into another world.
func TestReplayInFreshWorlds(t *testing.T) {
	c := offline(t)
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	forth := talks(t, "north", 2)
	back := []any{forth[1], forth[0], forth[0], map[string]any{
		"handoff": forth[0]["handoff"], "expect": map[string]any{"status": "duplicate"},
	}}
	var lines strings.Builder
	for _, f := range forth {
		fmt.Fprintln(&lines, marshal(t, f))
	}
	for name, content := range map[string]string{
		"a.json": marshal(t, forth), "b.json": marshal(t, back), "sub/c.jsonl": lines.String(),
		"notes.txt": "no fixture",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	for _, args := range [][]string{{}, {"--concurrency", "4"}} {
		got := c.run(append([]string{"replay", dir, "--fresh", "--strict"}, args...)...)
		require.Equal(t, outcome{exitOK, got.out, ""}, got)
		assert.Contains(t, got.out, "\n8 passed, 0 failed, 0 unchecked (they expect nothing)\n")
		assert.Regexp(t, `(?m)^duplicate +1$`, got.out)
	}
}

// A fixture has the outcome of a game, and of a person, and the next one of the town has none.
func TestReplay_GameAndApproval(t *testing.T) {
	c := offline(t)
	made := talks(t, "north", 1)[0]
	with := func(members string, expect string) any {
		f := map[string]any{"handoff": made["handoff"], "snapshot": made["snapshot"]}
		require.NoError(t, json.Unmarshal([]byte(members), &f))
		f["expect"] = map[string]any{"reasonCode": expect}
		return f
	}
	for members, expect := range map[string]string{
		`{"game":{"status":"applied"}}`:                               "EXECUTED",
		`{"game":{"status":"refused","reasonCode":"PROTECTED_AREA"}}`: "PLUGIN_REJECTED",
		`{"approval":{}}`:                     "APPROVAL_REQUIRED",
		`{"approval":{"decision":"approve"}}`: "EXECUTED",
		`{"approval":{"decision":"reject"}}`:  "APPROVAL_DENIED",
		`{"game":{"status":"applied"},"approval":{"decision":"approve","actorId":"ada"}}`: "EXECUTED",
	} {
		file := c.file(marshal(t, []any{with(members, expect)}))
		got := c.run("replay", file, "--fresh", "--strict")
		assert.Equal(t, exitOK, got.status, members+got.out)
	}
	file := c.file(marshal(t, []any{with(`{"approval":{}}`, "APPROVAL_REQUIRED"), with(`{}`, "EXECUTED")}))
	assert.Equal(t, exitOK, c.run("replay", file, "--fresh", "--strict").status)
	got := c.run("replay", file)
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "replay it with --fresh")
	for members, says := range map[string]string{
		`{"game":{"status":"busy"}}`:                    "applied or refused",
		`{"approval":{"decision":"perhaps"}}`:           "approve or reject",
		`{"game":{"status":"applied"},"snapshot":null}`: "needs the member snapshot",
	} {
		got := c.run("replay", c.file(marshal(t, with(members, "EXECUTED"))), "--fresh")
		assert.Equal(t, exitUsage, got.status, members)
		assert.Contains(t, got.err, says)
	}
}

func TestReplayCountsWhatIsNotCompared(t *testing.T) {
	c := online(t)
	fixtures := talks(t, "north", 3)
	delete(fixtures[0], "expect")
	fixtures[1]["expect"] = map[string]any{}
	file, report := c.file(marshal(t, fixtures)), filepath.Join(t.TempDir(), "report.xml")
	got := c.run("replay", file, "--junit", report)
	require.Equal(t, exitOK, got.status, got.err)
	assert.Contains(t, got.out, "\n1 passed, 0 failed, 2 unchecked (they expect nothing)\n")
	data, err := os.ReadFile(report)
	require.NoError(t, err)
	var suites junitReport
	require.NoError(t, xml.Unmarshal(data, &suites))
	assert.Equal(t, []int{3, 0, 0, 2}, []int{suites.Tests, suites.Failures, suites.Errors,
		suites.Skipped})
	assert.Equal(t, file+"#1 (north 1)", suites.Suites[0].Cases[1].Name)

	got = c.run("replay", file, "--strict")
	assert.Equal(t, exitUsage, got.status)
	assert.Equal(t, "handoffctl: "+file+"#0 (north 0) expects nothing, and --strict refuses that\n",
		got.err)

	fixtures[2]["expect"] = map[string]any{"status": "rejected"}
	fixtures[2]["comment"] = "fails"
	got = c.run("replay", c.file(marshal(t, fixtures)), "--fresh", "--junit", report)
	assert.Equal(t, exitFailed, got.status)
	data, err = os.ReadFile(report)
	require.NoError(t, err)
	suites = junitReport{}
	require.NoError(t, xml.Unmarshal(data, &suites))
	assert.Equal(t, []int{3, 1, 0, 2}, []int{suites.Tests, suites.Failures, suites.Errors,
		suites.Skipped})
	assert.Contains(t, suites.Suites[0].Cases[2].Failure.Message,
		"expected rejected, got executed EXECUTED")
}

func TestReplayComparesBytes(t *testing.T) {
	c := online(t)
	made := c.handoff()
	c.pipe(made, "send", "-")
	again := string(c.send(made).Result)
	expecting := func(text string) outcome {
		return c.pipe(fmt.Sprintf(`{"handoff": %s, "expect": %s}`, made,
			marshal(t, map[string]any{"resultBytes": text})), "replay", "-")
	}
	assert.Equal(t, exitOK, expecting(again).status)
	got := expecting(edited(t, again, nil))
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "expected the bytes of the result given\n")
	assert.Contains(t, got.out,
		"the bytes of the result: the same values, written in another way\n")
	got = expecting(strings.Replace(again, `"executed":false`, `"executed":true`, 1))
	assert.Contains(t, got.out, "/executed: expected true, got false\n")
}

// What cannot be a fixture is refused before anything is sent, in words of JSON.
func TestReplayRefusesBadInput(t *testing.T) {
	c := offline(t)
	for name, test := range map[string]struct{ input, wants string }{
		"empty":       {"", "- is not JSON: it is empty"},
		"blank":       {" \n", "- is not JSON: it is empty"},
		"no fixtures": {"[]", "there is no fixture in -"},
		"a BOM": {"\xef\xbb\xbf{}",
			"- is not JSON: it begins with a byte order mark (BOM)"},
		"binary":  {"\x00\x01\x02", "- is not JSON: "},
		"cut off": {`{"handoff": {`, "- is not JSON: "},
		"a typing error": {`{"handoff": {}, "expected": {}}`,
			"-: there is no member /expected: a fixture has the members "},
		"no handoff": {`{"expect": {"status": "stale"}}`,
			"-: a fixture with the member expect needs the member handoff"},
		"a bad line": {"{\"handoff\": {}}\n{\"handoff\": {}, \"xpect\": 1}",
			"-#1: there is no member /xpect"},
		"unknown expects": {`{"handoff": {}, "expect": {"statos": 1}}`,
			"-: there is no member /expect/statos: a fixture has the members "},
		"a wrong kind": {`{"handoff": {}, "expect": {"status": 7}}`,
			"-: /expect/status cannot be a number"},
	} {
		got := c.pipe(test.input, "replay", "-")
		assert.Equal(t, exitUsage, got.status, name)
		assert.Contains(t, got.err, "handoffctl: "+test.wants, name)
		assert.NotContains(t, got.err, "Go ", name)
		assert.NotContains(t, got.err, "main.", name)
	}
}
