package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/client"
)

func TestSend_WaitApproval(t *testing.T) {
	c := onlineWith(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"})
	handoff := c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
	got := c.pipe(handoff, "send", "-", "--wait-approval", "1ms")
	assert.Contains(t, got.out, "rejected (APPROVAL_REQUIRED)")
	sent := make(chan outcome, 1)
	go func() { sent <- c.pipe(handoff, "send", "-", "--wait-approval", "1h") }()
	c.ok("approve", "handoff_", "--reason", "do")
	assert.Contains(t, (<-sent).out, "executed")
}

// Of two handoffs with one handoffId, --hash says which; --town says it of two towns.
func TestApprovals_OneID(t *testing.T) {
	c := onlineWith(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"})
	waiting := func() (list []client.Approval) {
		return decode[struct {
			Approvals []client.Approval `json:"approvals"`
		}](t, c.ok("approvals", "-o", "json")).Approvals
	}
	for _, reason := range []string{"the first", "the second"} {
		handoff := c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
		said := decode[map[string]any](t, handoff)
		said["proposal"].(map[string]any)["reason"] = reason
		require.Contains(t, c.pipe(marshal(t, said), "send", "-").out, "APPROVAL_REQUIRED")
	}
	rows := waiting()
	require.Len(t, rows, 2)
	id := rows[0].HandoffID
	require.Equal(t, id, rows[1].HandoffID)

	c.fails(exitUsage, "2 proposals that wait have an id", "approve", id)
	for i := range rows {
		c.fails(exitUsage, id+" --town "+threatened+" --hash "+rows[i].HandoffHash[:12], "approve", id)
	}
	assert.Equal(t, exitUsage, c.run("approve", id, "--town", threatened).status)
	c.fails(exitUsage, `in the town "elsewhere"`, "approve", id, "--town", "elsewhere",
		"--hash", rows[1].HandoffHash[:8])
	assert.Contains(t, c.run("approve", id, "--town", "elsewhere").err, "UNKNOWN_APPROVAL")
	assert.Contains(t, c.run("approve", "handoff_", "--hash", "x").err,
		`and a hash that begins with "x"`)
	c.ok("reject", "handoff_", "--hash", rows[1].HandoffHash[:8], "--reason", "no")
	left := waiting()
	require.Len(t, left, 1)
	require.Equal(t, rows[0].HandoffHash, left[0].HandoffHash)
	c.fails(exitRefused, "APPROVAL_DIFFERS", "approve", id, "--town", threatened,
		"--hash", strings.Repeat("0", 64))
	c.ok("approve", id, "--hash", rows[0].HandoffHash)
}
