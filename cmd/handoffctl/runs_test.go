package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/messages"
)

func TestRunGetAndList(t *testing.T) {
	c := online(t)
	made := c.ok("new", threatened, "talk", "casual")
	sent := c.pipe(made, "send", "-", "-o", "json")
	require.Equal(t, exitOK, sent.status, sent.err)
	runID := decode[struct {
		RunID string `json:"runId"`
	}](t, sent.out).RunID

	text := c.ok("run", "get", runID)
	assert.Regexp(t, `(?m)^status +COMPLETED +CONSISTENT *$`, text)
	assert.Regexp(t, `(?m)^step 1 +apply +SUCCESS`, text)
	assert.Equal(t, runID, decode[runevents.Snapshot](t,
		c.ok("run", "get", runID, "-o", "json")).RunID)

	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)
	table := strings.Split(strings.TrimSpace(c.ok("run", "list", "--town", threatened)), "\n")
	require.Len(t, table, 3)
	assert.Regexp(t, `^RUN +ARRIVED +TOOK +STATUS +ACTOR +ASKED +OUTCOME$`, table[0])
	assert.Regexp(t, `duplicate DUPLICATE_HANDOFF$`, table[1])
	assert.Regexp(t, `^`+runID+` .* COMPLETED +\S+ +townsfolk talk `+threatened+
		` casual +executed EXECUTED$`, table[2])

	page := decode[messages.Runs](t, c.ok("run", "list", "--last", "1", "-o", "json"))
	require.Len(t, page.Runs, 1)
	assert.NotEqual(t, runID, page.Runs[0].RunID)
	after := fmt.Sprint(page.Next)
	assert.Contains(t, c.ok("run", "list", "--last", "1"), "\nshowing 1 among the runs up to "+
		page.SearchedTo+": --after "+after+" goes on\n")
	assert.Equal(t, "no runs\n", c.ok("run", "list", "--reason", "nonsense"))
	var out strings.Builder
	require.NoError(t, (&app{out: &out}).printRuns(
		&messages.Runs{Next: 7, Searched: 2, SearchedTo: "2026-02-16T10:00:00.000Z"}))
	assert.Equal(t, "none among the 2 runs up to 2026-02-16T10:00:00.000Z: --after 7 goes on\n",
		out.String())
	page = decode[messages.Runs](t, c.ok("run", "list", "--limit", "1", "--after", after, "-o", "json"))
	require.Len(t, page.Runs, 1)
	assert.Equal(t, runID, page.Runs[0].RunID)
	for _, args := range [][]string{
		{"--oldest", "--last", "1"}, {"--status", "executed"}, {"--reason", "executed"},
		{"--type", "TOWNSFOLK_TALK", "--status", "executed"},
		{"--actor", page.Runs[0].ActorID, "--status", "executed", "--since", "1h"},
	} {
		page = decode[messages.Runs](t, c.ok(append([]string{"run", "list", "-o", "json"}, args...)...))
		require.Len(t, page.Runs, 1, args)
		assert.Equal(t, runID, page.Runs[0].RunID, args)
	}
	assert.Empty(t, decode[messages.Runs](t, c.ok("run", "list", "--until", "2001-01-01T00:00:00Z", "-o",
		"json")).Runs)

	got := c.run("run", "get", "00000000-0000-4000-8000-000000000000")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_RUN (404)")
	assert.Equal(t, exitUsage, c.run("run", "list", "--last", "0").status)
	assert.Equal(t, exitUsage, c.run("run", "list", "--since", "yesterday").status)
	assert.Equal(t, exitRefused, c.run("run", "list", "--status", "done").status)
}
