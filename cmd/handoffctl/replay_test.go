package main

import (
	"fmt"
	"os"
	"path/filepath"
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

func TestReplayExits1AndListsEveryFailure(t *testing.T) {
	c := online(t)
	fixtures := talks(t, "north", 3)
	fixtures[1]["expect"] = map[string]any{"status": "stale"}
	fixtures[2]["expect"] = map[string]any{"reasonCode": "LUCK"}
	file := c.file(marshal(t, fixtures))
	got := c.run("replay", file)
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^executed   3$`, got.out)
	assert.Contains(t, got.out, "\nfailed: "+file+"#1 (north 1)\n  expected stale\n  got      "+
		"executed EXECUTED (run ")
	assert.Contains(t, got.out, "\nfailed: "+file+"#2 (north 2)\n  expected LUCK\n  got      "+
		"executed EXECUTED (run ")
	assert.Equal(t, "handoffctl: 2 of 3 fixtures failed\n", got.err)

	got = c.run("replay", file, "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	s := decode[summary](t, got.out)
	assert.Equal(t, 3, s.Replayed)
	assert.Len(t, s.Failures, 3, "the town has moved on, so the fixtures are not what they were")
}

func TestReplayComparesWholeResults(t *testing.T) {
	c := online(t)
	made := c.handoff()
	sent := c.send(made)
	again := c.send(made)

	got := c.pipe(fmt.Sprintf(`{"handoff": %s, "expect": {"result": %s}}`, made, again.Result),
		"replay", "-")
	assert.Equal(t, exitOK, got.status, got.out)
	reordered := edited(t, string(again.Result), nil)
	got = c.pipe(fmt.Sprintf(`{"handoff": %s, "expect": {"result": %s}}`, made, reordered),
		"replay", "-")
	assert.Equal(t, exitOK, got.status, "the order of the members does not matter")

	got = c.pipe(fmt.Sprintf(`{"handoff": %s, "expect": {"result": %s}}`, made, sent.Result),
		"replay", "-")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "failed: -\n  expected the result given\n  got      duplicate "+
		"DUPLICATE_HANDOFF (run ")
	assert.Contains(t, got.out, "    /accepted: expected true, got false\n")
	assert.Contains(t, got.out, "more\n")
}

func TestReplayOfRefusals(t *testing.T) {
	c := online(t)
	data, err := os.ReadFile(vectors("handoffs.invalid.json"))
	require.NoError(t, err)
	all := decode[[]map[string]any](t, string(data))
	got := c.run("replay", vectors("handoffs.invalid.json"), "-o", "json")
	assert.Equal(t, exitFailed, got.status, "a refusal that is not expected is a failure")
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

	got = c.pipe(fmt.Sprintf(`{"handoff": %s, "expect": {"error": "INVALID_JSON"}}`, c.handoff()),
		"replay", "-")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "expected error INVALID_JSON\n  got      executed EXECUTED")
}

func TestReplayReadsTheVectorsAndDirectories(t *testing.T) {
	c := online(t)
	dir := t.TempDir()
	data, err := os.ReadFile(vectors("handoffs.valid.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.json"), data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(c.handoff()), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no fixture"), 0o600))
	s := decode[summary](t, c.ok("replay", dir, "--concurrency", "4", "-o", "json"))
	count := len(decode[[]any](t, string(data)))
	assert.Equal(t, count+1, s.Replayed)
	assert.Equal(t, 1, s.Outcomes["executed"])
	assert.Equal(t, count, s.Outcomes["rejected"]+s.Outcomes["stale"],
		"their towns are unknown or others here")
}

func TestReplayKeepsTheOrderWithinATown(t *testing.T) {
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

func TestReplayFailsAFixtureWhoseTownCannotBePut(t *testing.T) {
	c := online(t)
	fixtures := talks(t, "north", 2)
	got := c.pipe(marshal(t, []any{fixtures[1], fixtures[0]}), "replay", "-")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "failed: -#1 (north 0)\n  expected its snapshot to be put\n"+
		"  got      error EPOCH_REGRESSION (409)")
	assert.Regexp(t, `(?m)^executed   1$`, got.out)
	assert.Regexp(t, `(?m)^refused    1$`, got.out)
}

func TestReplayStopsWhenTheServerIsAway(t *testing.T) {
	c := online(t)
	file := c.file(marshal(t, talks(t, "north", 2)))
	got := c.run("replay", file, "--world", "elsewhere")
	assert.Equal(t, exitUnavailable, got.status)
	assert.Regexp(t, `(?m)^not replayed  2$`, got.out)
	assert.Contains(t, got.err, "NO_RESPONDERS")
}

func TestReplayRefusesFixturesThatCannotBeRead(t *testing.T) {
	c := offline(t)
	for name, test := range map[string]struct{ fixture, wants string }{
		"not JSON":  {`[{]`, "- is not JSON: "},
		"no object": {`[7]`, "-#0: a fixture is an object, not 7"},
		"unknown status": {`{"handoff": {}, "expect": {"status": "done"}}`,
			`-: expect: there is no status "done"`},
		"a name of no words": {`[{"handoff": {}, "name": 7}]`, "-#0: "},
	} {
		got := c.pipe(test.fixture, "replay", "-")
		assert.Equal(t, exitUsage, got.status, name)
		assert.Contains(t, got.err, "handoffctl: "+test.wants, name)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	same := jsontext.Value(`{"a": {"b": [1, 2]}, "c": null}`)
	assert.Nil(t, differences(nil, same))
	assert.Nil(t, differences(same, jsontext.Value(`{"c":null,"a":{"b":[1.0,2]}}`)))
	assert.Equal(t, []string{
		"/a/b: expected [1,2], got [2,1]", "/c: expected null, got none",
		"/d~1e: expected none, got 7",
	}, differences(same, jsontext.Value(`{"a": {"b": [2, 1]}, "d/e": 7}`)))
	assert.Contains(t, differences(jsontext.Value(`{"a": 1, "a": 2}`), same)[0],
		"what is expected cannot be compared: ")
}
