package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

func TestTownDiff(t *testing.T) {
	c := online(t)
	at := func() string {
		return fmt.Sprintf("%s@%d", threatened,
			decode[client.Town](t, c.ok("town", "get", threatened, "-o", "json")).Revision)
	}
	before := at()
	c.pipe(`{"day":16,"pressure":{"hope":0.25}}`, "town", "patch", threatened, "-")
	got := c.run("town", "diff", before)
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^/day +15 -> 16$`, got.out)
	assert.Regexp(t, `(?m)^/pressure/hope +[0-9.]+ -> 0.25$`, got.out)
	assert.Equal(t, "handoffctl: the snapshots differ\n", got.err)
	assert.Empty(t, c.ok("town", "diff", threatened, at()))
	found := decode[struct {
		Differences []handoff.Difference `json:"differences"`
	}](t, c.run("town", "diff", threatened, "town-quiet", "-o", "json").out).Differences
	assert.Contains(t, found, handoff.Difference{Path: "/townId",
		Before: []byte(`"town-threatened"`), After: []byte(`"town-quiet"`)})
	assert.Equal(t, exitRefused, c.run("town", "diff", threatened+"@99").status)
}

func TestLimit(t *testing.T) {
	c := online(t)
	c.pipe(c.handoff(), "send", "-")
	for _, args := range [][]string{
		{"town", "list"}, {"run", "list"}, {"town", "history", threatened}, {"approvals"},
		{"run", "events", decode[struct {
			Runs []struct {
				RunID string `json:"runId"`
			} `json:"runs"`
		}](t, c.ok("run", "list", "-o", "json")).Runs[0].RunID},
	} {
		lines := c.ok(append(args, "--limit", "1")...)
		assert.LessOrEqual(t, strings.Count(lines, "\n"), 3, args)
	}
}

func TestTownArgument(t *testing.T) {
	c := online(t)
	c.ok("pause", threatened)
	assert.Contains(t, c.ok("status", threatened), "PAUSED")
	assert.Contains(t, c.ok("status", "--town", threatened), "PAUSED")
	got := c.run("resume", threatened, "--town", "town-quiet")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "give one of them")
	c.ok("resume", threatened)
}
