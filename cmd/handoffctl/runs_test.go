package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
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
	assert.Equal(t, runID, decode[runevents.Snapshot](t, c.ok("run", "get", runID, "-o", "json")).RunID)

	require.Equal(t, exitOK, c.pipe(made, "send", "-").status)
	table := strings.Split(strings.TrimSpace(c.ok("run", "list", "--town", threatened)), "\n")
	require.Len(t, table, 3)
	assert.Regexp(t, `^RUN +STARTED +STATUS +ASKED +OUTCOME$`, table[0])
	assert.Regexp(t, `^`+runID+` .* COMPLETED +townsfolk talk `+threatened+` casual +executed EXECUTED$`, table[1])
	assert.Regexp(t, `duplicate DUPLICATE_HANDOFF$`, table[2])

	page := decode[runPage](t, c.ok("run", "list", "--limit", "1", "-o", "json"))
	require.Len(t, page.Runs, 1)
	assert.Equal(t, runID, page.Runs[0].RunID)
	assert.NotZero(t, page.Next)
	assert.Empty(t, decode[runPage](t, c.ok("run", "list", "--until", "2001-01-01T00:00:00Z", "-o", "json")).Runs)

	got := c.run("run", "get", "00000000-0000-4000-8000-000000000000")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_RUN (404)")
	assert.Equal(t, exitUsage, c.run("run", "list", "--limit", "0").status)
	assert.Equal(t, exitUsage, c.run("run", "list", "--since", "yesterday").status)
}
