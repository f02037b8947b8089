package main

import (
	"encoding/json"
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
	sent := c.pipe(handoff, "send", "-").out
	assert.Contains(t, sent, "rejected (APPROVAL_REQUIRED)")
	assert.Regexp(t, `(?m)^handoff +handoff_[0-9a-f]{64}$`, sent, "for who approves it")

	text := c.ok("approvals", "--town", threatened)
	assert.Regexp(t,
		`handoff_[0-9a-f]{64} +[0-9a-f]{12} +town-threatened +waiting .* townsfolk talk `+
			`town-threatened casual +/day 15 -> 16, /pressure/hope`, text)
	require.Len(t, waiting(), 1)
	id := waiting()[0].HandoffID
	assert.Regexp(t, `^approved handoff_.* in town-threatened\nexecuted EXECUTED, run `,
		c.ok("approve", id[:20], "--reason", "do", "--submit"))
	require.Empty(t, waiting())
	got := c.run("reject", id, "--town", threatened, "--reason", "no")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "ALREADY_DECIDED")

	handoff = c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
	c.pipe(handoff, "send", "-")
	assert.Contains(t, c.ok("reject", "handoff_", "--reason", "not now"), "denied handoff_")
	assert.Contains(t, c.pipe(handoff, "send", "-").out, "Denied by operator: not now")
	text = c.ok("approvals", "--closed")
	assert.Regexp(t, `town-threatened +denied .* mayor-1 +townsfolk talk \S+ casual +operator +not now +\S+-`,
		text)
	assert.Regexp(t, `town-threatened +used .* operator +do +\S+-`, text)
	assert.NotContains(t, c.ok("approvals", "--closed", "--limit", "1"), "used")
	got = c.run("approve", "handoff_0")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, `no proposal that waits has an id that begins with "handoff_0"`)
	got = c.run("approve", id)
	assert.Equal(t, exitUsage, got.status, "no town says what became of it")
	assert.Contains(t, got.err, "with --town and its whole id")
}

// A town's list of what takes an approval is put, patched and shown.
func TestTheApprovalsOfATown(t *testing.T) {
	c := online(t)
	shown := func() string { return c.ok("town", "get", threatened) }
	assert.NotContains(t, shown(), "approval")
	c.pipe("{}", "town", "patch", threatened, "-", "--require-approval",
		"TOWNSFOLK_TALK,PROJECT_ADVANCE")
	assert.Regexp(t, `(?m)^approval +of PROJECT_ADVANCE,TOWNSFOLK_TALK$`, shown())
	c.pipe("{}", "town", "patch", threatened, "-")
	assert.Regexp(t, `(?m)^approval +of PROJECT_ADVANCE`, shown(), "it stays as it is")
	c.ok("town", "put", c.file(c.ok("town", "get", threatened, "-o", "json")), "--replace",
		"--require-approval", "SALVAGE_PLAN")
	assert.Regexp(t, `(?m)^approval +of SALVAGE_PLAN$`, shown())
	c.pipe("{}", "town", "patch", threatened, "-", "--require-approval", "none")
	assert.NotContains(t, shown(), "approval")
	got := c.pipe("{}", "town", "patch", threatened, "-", "--require-approval", "MAGIC")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "there is no type of proposals")
}

// Of two handoffs with one handoffId, --hash says which; --town says it of two towns.
func TestApprovalsWithOneID(t *testing.T) {
	c := onlineWith(t, worldengine.Config{RequireApproval: "TOWNSFOLK_TALK"})
	waiting := func() (list []client.Approval) {
		return decode[struct {
			Approvals []client.Approval `json:"approvals"`
		}](t, c.ok("approvals", "-o", "json")).Approvals
	}
	for _, reason := range []string{"the first", "the second"} {
		handoff := c.ok("new", threatened, "TOWNSFOLK_TALK", "casual")
		var said map[string]any
		require.NoError(t, json.Unmarshal([]byte(handoff), &said))
		said["proposal"].(map[string]any)["reason"] = reason
		changed, err := json.Marshal(said)
		require.NoError(t, err)
		require.Contains(t, c.pipe(string(changed), "send", "-").out, "APPROVAL_REQUIRED")
	}
	rows := waiting()
	require.Len(t, rows, 2)
	id := rows[0].HandoffID
	require.Equal(t, id, rows[1].HandoffID)

	got := c.run("approve", id)
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "2 proposals that wait have an id")
	for i := range rows {
		assert.Contains(t, got.err, id+" --town "+threatened+" --hash "+rows[i].HandoffHash[:12])
	}
	assert.Equal(t, exitUsage, c.run("approve", id, "--town", threatened).status)
	got = c.run("approve", id, "--town", "elsewhere", "--hash", rows[1].HandoffHash[:8])
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, `in the town "elsewhere"`)
	assert.Contains(t, c.run("approve", id, "--town", "elsewhere").err, "UNKNOWN_APPROVAL")
	assert.Contains(t, c.run("approve", "handoff_", "--hash", "x").err,
		`and a hash that begins with "x"`)
	c.ok("reject", "handoff_", "--hash", rows[1].HandoffHash[:8], "--reason", "no")
	left := waiting()
	require.Len(t, left, 1)
	require.Equal(t, rows[0].HandoffHash, left[0].HandoffHash)
	got = c.run("approve", id, "--town", threatened, "--hash", sixtyFour("0"))
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "APPROVAL_DIFFERS")
	c.ok("approve", id, "--hash", rows[0].HandoffHash)
}

func sixtyFour(digit string) (text string) {
	for range 64 {
		text += digit
	}
	return text
}
