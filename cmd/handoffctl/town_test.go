package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
)

func TestTownGet(t *testing.T) {
	c := online(t)
	text := c.ok("town", "get", threatened)
	assert.Regexp(t, `(?m)^town          town-threatened$`, text)
	assert.Regexp(t, `(?m)^epoch         15 \(the day\)$`, text)
	assert.Regexp(t, `(?m)^mission       -$`, text)
	assert.Regexp(t, `(?m)^project       wall-perimeter: Perimeter Wall, active, progress 0.6$`,
		text)
	assert.Contains(t, c.ok("town", "get", "Fort Ашера № 2"),
		"side quest  первый дозор: First watch")

	reply := decode[client.Town](t, c.ok("town", "get", threatened, "-o", "json"))
	assert.Equal(t, threatened, reply.Snapshot.TownID)
	assert.Equal(t, threatened, reply.TownID)

	got := c.run("town", "get", "nowhere")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_TOWN (404): there is no such town")
}

func TestTownPut(t *testing.T) {
	c := online(t)
	snapshot := string(newTown(t, "north", 2))
	got := c.pipe(snapshot, "town", "put", "-")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Regexp(t, `^stored north: epoch 2, snapshot [0-9a-f]{64}, revision \d+\n$`, got.out)

	got = c.pipe(snapshot, "town", "put", "-", "-o", "json")
	assert.Equal(t, exitRefused, got.status)
	assert.Equal(t, "TOWN_EXISTS", errorCode(t, got.out))

	first := c.ok("town", "get", "north", "-o", "json")
	later := c.file(string(newTown(t, "north", 3)))
	got = c.run("town", "put", later, "--expect", strings.Repeat("0", 64))
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "SNAPSHOT_CONFLICT (409)")
	c.ok("town", "put", later, "--expect", decode[client.Town](t, first).SnapshotHash)

	got = c.pipe(first, "town", "put", "-", "--replace")
	assert.Equal(t, exitRefused, got.status,
		"a reply of town get is understood, and days never go back")
	assert.Contains(t, got.err, "EPOCH_REGRESSION (409)")
	c.ok("town", "put", c.file(string(newTown(t, "north", 9))), "--replace")
	reply := decode[client.Town](t, c.ok("town", "put", c.file(string(newTown(t, "south", 0))),
		"--replace", "-o", "json"))
	assert.Equal(t, "south", reply.TownID, "what does not exist is created")
}

func TestTownPutExplainsABadSnapshot(t *testing.T) {
	c := online(t)
	got := c.pipe(edited(t, string(newTown(t, "north", 2)), map[string]any{"day": -1}),
		"town", "put", "-")
	assert.Equal(t, exitRefused, got.status)
	assert.Regexp(t, `(?m)^  /snapshot/day: .+`, got.err)

	got = c.pipe("{", "town", "put", "-")
	assert.Equal(t, exitUsage, got.status)
	got = c.pipe("{", "town", "put", "-", "--replace")
	assert.Equal(t, exitUsage, got.status)
}

func TestTownListReadsEveryPage(t *testing.T) {
	c := online(t)
	table := strings.Split(strings.TrimSpace(c.ok("town", "list")), "\n")
	require.Len(t, table, 4)
	assert.Regexp(t, `^TOWN +EPOCH +SNAPSHOT +REVISION +APPLY +STATE +PENDING$`, table[0])
	assert.Regexp(t, `^Fort Ашера № 2 +0 +[0-9a-f]{64} +\d+ +local +- +-$`, table[1])

	page := decode[messages.Towns](t, c.ok("town", "list", "-o", "json"))
	require.Len(t, page.Towns, 3)
	assert.Equal(t, threatened, page.Towns[2].TownID)
}

// A page of towns is bounded by the largest message, so long ids make pages short.
func TestTownListFollowsNext(t *testing.T) {
	c := online(t)
	const many = 10 // of which a page has a few
	for i := range many {
		id := fmt.Sprintf("%02d%s", i, strings.Repeat("x", 40_000))
		state := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: id})
		_, err := c.engine.Put(t.Context(), state, "")
		require.NoError(t, err)
	}
	page := decode[messages.Towns](t, c.ok("town", "list", "-o", "json"))
	require.Len(t, page.Towns, many+3)
	assert.Empty(t, page.Next)
}

func TestTownPatch(t *testing.T) {
	c := online(t)
	before := decode[client.Town](t, c.ok("town", "get", threatened, "-o", "json"))
	got := c.pipe(`{"pressure": {"hope": 0.75}, "latestNetherEvent": "A ghast was seen."}`, "town",
		"patch", threatened, "-")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Regexp(t, `^stored town-threatened: epoch 15, snapshot [0-9a-f]{64}, revision \d+\n$`,
		got.out)
	text := c.ok("town", "get", threatened)
	assert.Contains(t, text, "hope 0.75")
	assert.Contains(t, text, "A ghast was seen.")

	calm := c.file(`{"pressure": {"threat": 0}}`)
	got = c.run("town", "patch", threatened, calm, "--expect", before.SnapshotHash)
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "SNAPSHOT_CONFLICT (409)")
	now := decode[client.Town](t, c.ok("town", "get", threatened, "-o", "json"))
	reply := decode[client.Town](t, c.ok("town", "patch", threatened, calm, "--expect",
		now.SnapshotHash, "-o", "json"))
	assert.Zero(t, reply.Snapshot.Pressure.Threat)

	for patch, wants := range map[string]struct {
		status int
		says   string
	}{
		`{"day": 1}`:                {exitRefused, "EPOCH_REGRESSION (409)"},
		`{"pressure": {"hope": 2}}`: {exitRefused, "/patch/pressure/hope: "},
		`[]`:                        {exitUsage, "- has a list, and one merge patch is meant"},
		`{`:                         {exitUsage, "- is not JSON: "},
	} {
		got := c.pipe(patch, "town", "patch", threatened, "-")
		assert.Equal(t, wants.status, got.status, patch)
		assert.Contains(t, got.err, wants.says, patch)
	}
	got = c.pipe("{}", "town", "patch", "nowhere", "-")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_TOWN (404)")
}

func TestTownPutSaysWhoApplies(t *testing.T) {
	c := online(t)
	assert.Regexp(t, `(?m)^apply +local$`, c.ok("town", "get", threatened))
	file := c.file(string(newTown(t, "north", 2)))
	c.ok("town", "put", file, "--apply", "plugin")
	assert.Regexp(t, `(?m)^apply +plugin$`, c.ok("town", "get", "north"))
	c.ok("town", "put", file, "--replace")
	assert.Regexp(t, `(?m)^apply +plugin$`, c.ok("town", "get", "north"), "it stays as it is")
	c.ok("town", "put", file, "--replace", "--apply", "local")
	assert.Regexp(t, `(?m)^apply +local$`, c.ok("town", "get", "north"))
	got := c.run("town", "put", file, "--replace", "--apply", "rcon")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "/apply: ", "the server has no console")
}

func TestTownHistory(t *testing.T) {
	c := online(t)
	sent := decode[answer](t, c.pipe(c.handoff(), "send", "-", "-o", "json").out)
	c.ok("pause", "--town", threatened, "--actor", "ada")
	lines := strings.Split(c.ok("town", "history", threatened), "\n")
	require.Len(t, lines, 5, "the head, three revisions, and the end")
	assert.Regexp(t, `^REVISION +TIME +CAUSE +ACTOR +STATUS +EPOCH +HASH +RUN +COMMAND$`, lines[0])
	assert.Regexp(t, `^\d+ +\S+Z +control +ada +- +16 `, lines[1])
	assert.Regexp(t, `^\d+ +\S+Z +handoff +\S+ +executed +16 +[0-9a-f]{64} +`+sent.RunID+
		` +project advance town-threatened wall-perimeter$`, lines[2])
	assert.Regexp(t, `^\d+ +\S+Z +put +world file +- +15 `, lines[3])

	page := decode[messages.History](t, c.ok("town", "history", threatened, "--last", "2", "-o", "json"))
	require.Len(t, page.Revisions, 2)
	before := fmt.Sprint(page.Next)
	assert.Contains(t, c.ok("town", "history", threatened, "--last", "2"),
		"\nshowing 2 of more: --before "+before+" goes on\n")
	rest := decode[messages.History](t, c.ok("town", "history", threatened, "--before", before,
		"-o", "json"))
	require.Len(t, rest.Revisions, 1)
	assert.Zero(t, rest.Next)

	assert.Regexp(t, `^TOWN +REVISION .*\n`+threatened+` +\d+ +\S+Z +control +ada `,
		c.ok("town", "history"))
	first := fmt.Sprint(rest.Revisions[0].Revision.Revision)
	assert.Regexp(t, `(?m)^epoch +15 `, c.ok("town", "get", threatened, "--revision", first))
	got := c.run("town", "get", threatened, "--revision", "999999")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "REVISION_GONE (404)")
}

func TestTownPut_List(t *testing.T) {
	got := offline(t).pipe("[{}]", "town", "put", "-")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "--world-file")
}

func TestTownRemove(t *testing.T) {
	c := online(t)
	got := c.run("town", "remove", threatened)
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "--yes")
	assert.Equal(t, "removed town-threatened, which was at day 15\n",
		c.ok("town", "remove", threatened, "--yes"))
	got = c.run("town", "remove", threatened, "--yes")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_TOWN")
	assert.NotContains(t, c.ok("town", "list"), threatened)
	assert.Contains(t, c.ok("town", "history", threatened), "remove")
	assert.Contains(t, c.ok("fsck"), "1 removal")
}
