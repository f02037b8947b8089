package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/client"
)

func TestApprovals(t *testing.T) {
	c := onlineWith(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"})
	waiting := func() []client.Approval {
		return decode[struct {
			Approvals []client.Approval `json:"approvals"`
		}](t, c.ok("approvals", "-o", "json")).Approvals
	}
	handoff := c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
	assert.Contains(t, c.pipe(handoff, "send", "-", "--dry-run").out, "would need approval")
	require.Empty(t, waiting(), "a dry run asks nobody")
	assert.Contains(t, c.pipe(handoff, "send", "-").out, "rejected (APPROVAL_REQUIRED)")

	text := c.ok("approvals", "--town", threatened)
	assert.Regexp(t,
		`handoff_[0-9a-f]{64} +waiting .* townsfolk talk town-threatened casual +/day 15 -> 16, /pressure/hope`, text)
	require.Len(t, waiting(), 1)
	id := waiting()[0].HandoffID
	assert.Regexp(t, `^approved handoff_.* in town-threatened\nexecuted EXECUTED, run `,
		c.ok("approve", id[:20], "--reason", "do", "--submit"))
	require.Empty(t, waiting())
	got := c.run("reject", id, "--reason", "no")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "ALREADY_DECIDED")

	handoff = c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
	c.pipe(handoff, "send", "-")
	assert.Contains(t, c.ok("reject", "handoff_", "--reason", "not now"), "denied handoff_")
	assert.Contains(t, c.pipe(handoff, "send", "-").out, "Denied by operator: not now")
	got = c.run("approve", "handoff_0")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "0 proposals that wait")
	assert.Contains(t, c.run("approve", id[:8]+sixtyFour("0")).err, "UNKNOWN_APPROVAL")
}

func sixtyFour(digit string) (text string) {
	for range 64 {
		text += digit
	}
	return text
}
