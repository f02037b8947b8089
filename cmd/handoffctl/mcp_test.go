package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
)

// model is the SDK's own client, in a session with handoffctl mcp.
type model struct {
	t       *testing.T
	session *mcp.ClientSession
}

// startMCP starts the command on pipes, as a program that has a language model does.
func startMCP(t *testing.T, c *cli) *model {
	t.Helper()
	toServer, fromModel := io.Pipe()
	toModel, fromServer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	engine, err := client.Connect(c.flags["server"], client.Options{})
	require.NoError(t, err)
	engine.Timeout = 30 * time.Second
	command := &mcpCommand{Actor: "mayor-7"}
	ended := make(chan error, 1)
	go func() {
		ended <- command.serve(ctx, engine, toServer, fromServer)
		_ = fromServer.Close()
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(
		ctx, &mcp.IOTransport{Reader: toModel, Writer: fromModel}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		cancel()
		assert.NoError(t, <-ended)
		engine.Close()
	})
	return &model{t, session}
}

// call calls a tool, and returns the text of its answer and whether it is an error.
func (m *model) call(tool string, arguments map[string]any) (string, bool) {
	m.t.Helper()
	got, err := m.session.CallTool(m.t.Context(),
		&mcp.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(m.t, err)
	require.Len(m.t, got.Content, 1)
	return got.Content[0].(*mcp.TextContent).Text, got.IsError
}

// ok calls a tool that must not fail.
func (m *model) ok(tool string, arguments map[string]any) string {
	m.t.Helper()
	text, failed := m.call(tool, arguments)
	require.False(m.t, failed, text)
	return text
}

func TestMCP_ReadTryPropose(t *testing.T) {
	c := online(t)
	m := startMCP(t, c)

	tools, err := m.session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		assert.NotEmpty(t, tool.Description)
		sends := tool.Name == "propose" || tool.Name == "resubmit"
		assert.Equal(t, !sends, tool.Annotations.ReadOnlyHint, tool.Name)
	}
	assert.ElementsMatch(t, []string{
		"list_towns", "read_town", "recall", "list_proposals", "dry_run", "propose", "resubmit",
		"read_result", "read_run",
	}, names)

	assert.Contains(t, m.ok("list_towns", nil), threatened)
	town := decode[client.Town](t, m.ok("read_town", map[string]any{"townId": threatened}))
	possible := decode[struct {
		Proposals []proposable `json:"proposals"`
	}](t, m.ok("list_proposals", map[string]any{"townId": threatened}))
	require.Len(t, possible.Proposals, len(handoff.ProposalTypes()))
	for _, p := range possible.Proposals {
		assert.Equal(t, p.Type == handoff.AdvanceProject,
			slices.Contains(p.Arguments, "wall-perimeter"), p.Type)
	}

	proposal := map[string]any{
		"townId": threatened, "type": "PROJECT_ADVANCE", "argument": "wall-perimeter",
		"reason": "The wall is low.", "snapshotHash": town.SnapshotHash,
	}
	tried := decode[mcpOutcome](t, m.ok("dry_run", proposal))
	assert.True(t, tried.DryRun)
	assert.Equal(t, town.SnapshotHash, decode[client.Town](t,
		m.ok("read_town", map[string]any{"townId": threatened})).SnapshotHash)

	got := decode[mcpOutcome](t, m.ok("propose", proposal))
	result, err := handoff.ParseResult(got.Result, schemas.Limits{})
	require.NoError(t, err)
	assert.Equal(t, handoff.Executed, result.Status)
	assert.JSONEq(t, string(tried.Result), string(got.Result))
	stored := decode[mcpOutcome](t, m.ok("read_result",
		map[string]any{"idempotencyKey": result.IdempotencyKey, "townId": threatened}))
	assert.Equal(t, got, stored)
	run := m.ok("read_run", map[string]any{"runId": got.RunID})
	assert.Contains(t, run, `"COMPLETED"`)
	assert.Contains(t, run, `"mayor-7"`)

	assert.Contains(t, m.ok("recall", map[string]any{"townId": threatened}),
		`"mayor-7 advanced the Perimeter Wall."`)
	assert.Contains(t, m.ok("recall", nil), got.RunID)

	old := decode[mcpOutcome](t, m.ok("propose", proposal))
	assert.Contains(t, string(old.Result), `"stale"`, "the town has moved on since it was read")

	delete(proposal, "snapshotHash")
	for _, priority := range []string{"0.5", "0", "1"} { // 0.5 is left out
		if priority != "0.5" {
			proposal["priority"] = jsontext.Value(priority)
		}
		got := decode[mcpOutcome](t, m.ok("propose", proposal))
		assert.Contains(t, c.ok("record", "--run", got.RunID), `"priority":`+priority+`,`)
	}
}

func TestMCP_Errors(t *testing.T) {
	m := startMCP(t, online(t))
	for tool, row := range map[string]struct {
		arguments map[string]any
		wants     string
	}{
		"read_town": {map[string]any{"townId": "atlantis"}, "UNKNOWN_TOWN (404)"},
		"read_run": {map[string]any{"runId": "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"},
			"UNKNOWN_RUN (404)"},
		"read_result": {map[string]any{"idempotencyKey": "x", "townId": threatened},
			"/idempotencyKey"},
		"dry_run": {map[string]any{"townId": threatened, "type": "op", "argument": "me",
			"reason": "r"}, "there is no proposal type"},
		"propose": {map[string]any{"townId": threatened, "type": "SALVAGE_PLAN", "argument": "gold",
			"reason": "r"}, "/proposal/args/focus"},
	} {
		text, failed := m.call(tool, row.arguments)
		assert.True(t, failed, tool)
		assert.Contains(t, text, row.wants, tool)
	}
	text, failed := m.call("propose", map[string]any{"townId": threatened})
	assert.True(t, failed)
	assert.Contains(t, text, "required")
}

// A model that waits for a person sends the same again, and may propose all that the rules accept.
func TestMCP_Approval(t *testing.T) {
	c := onlineWith(t, worldengine.Config{Settings: commitlog.Settings{RequireApproval: "PROJECT_ADVANCE"}})
	m := startMCP(t, c)
	c.pipe(`{"projects":[{"id":"done","name":"D","progress":1,"status":"complete"},
		{"id":"wall-perimeter","name":"W","progress":0.5,"status":"active"}]}`,
		"town", "patch", threatened, "-")
	possible := func() map[handoff.ProposalType]proposable {
		byType := map[handoff.ProposalType]proposable{}
		for _, p := range decode[struct {
			Proposals []proposable `json:"proposals"`
		}](t,
			m.ok("list_proposals", map[string]any{"townId": threatened})).Proposals {
			byType[p.Type] = p
		}
		return byType
	}
	at := possible()
	assert.True(t, at[handoff.AdvanceProject].NeedsApproval)
	assert.Equal(t, []string{"wall-perimeter"}, at[handoff.AdvanceProject].Arguments)
	assert.False(t, at[handoff.TalkToTownsfolk].NeedsApproval)
	for kind, p := range at {
		for _, argument := range p.Arguments {
			tried := decode[mcpOutcome](t, m.ok("dry_run", map[string]any{"townId": threatened,
				"type": kind, "argument": argument, "reason": "r"}))
			assert.Regexp(t, `"(EXECUTED|APPROVAL_REQUIRED)"`, string(tried.Result))
		}
	}
	got := decode[mcpOutcome](t, m.ok("propose", map[string]any{"townId": threatened,
		"type": "PROJECT_ADVANCE", "argument": "wall-perimeter", "reason": "r"}))
	result, err := handoff.ParseResult(got.Result, schemas.Limits{})
	require.NoError(t, err)
	assert.Equal(t, handoff.ReasonApprovalRequired, result.ReasonCode)
	c.ok("approve", "handoff_", "--reason", "do")
	key := map[string]any{"idempotencyKey": result.IdempotencyKey}
	assert.Contains(t, m.ok("resubmit", key), `EXECUTED`)
	assert.Contains(t, m.ok("resubmit", key), `duplicate`)
	text, failed := m.call("resubmit", map[string]any{"idempotencyKey": "x"})
	assert.True(t, failed)
	assert.Contains(t, text, "no proposal of this session")
}

// A line that is no JSON gets an error and ends nothing.
func TestMCP_NotJSON(t *testing.T) {
	c := online(t)
	engine, err := client.Connect(c.flags["server"], client.Options{})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	in, model := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- (&mcpCommand{}).serve(t.Context(), engine, in, out) }()
	lines := bufio.NewScanner(answers)
	for _, line := range []string{"hello", "", "{", `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-06-18","capabilities":{},` +
		`"clientInfo":{"name":"t","version":"1"}}}`} {
		_, err := io.WriteString(model, line+"\n")
		require.NoError(t, err)
		if line == "" {
			continue
		}
		require.True(t, lines.Scan())
		if len(line) > len("hello") {
			assert.Contains(t, lines.Text(), `"protocolVersion"`)
		} else {
			assert.Contains(t, lines.Text(), `"id":null,"error":{"code":-32700,`)
		}
	}
	require.NoError(t, model.Close())
	require.NoError(t, <-ended)
}

// Requests in hand are answered although the input has ended, also if two have one id.
func TestMCP_InputEnds(t *testing.T) {
	got := online(t).pipe(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":`+
		`"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"propose","arguments":{"townId":"`+threatened+
		`","type":"PROJECT_ADVANCE","argument":"wall-perimeter","reason":"r"}}}
{"jsonrpc":"2.0","id":2,"method":"ping"}
`, "mcp")
	assert.Equal(t, 0, got.status, got.err)
	assert.Regexp(t, `(?m)^\{"jsonrpc":"2.0","id":2,.*EXECUTED`, got.out)
}

// An input that is no MCP and a pipe that fails are different errors.
func TestMCP_End(t *testing.T) {
	c := online(t)
	assert.Equal(t, outcome{}, c.pipe("", "mcp"))
	got := c.pipe("7\n", "mcp")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "the input is not the Model Context Protocol")

	var errs bytes.Buffer
	gone := &fs.PathError{Op: "read", Path: "/dev/stdin", Err: errors.New("the terminal is gone")}
	status := c.exec(t.Context(), iotest.ErrReader(gone), io.Discard, &errs, "mcp")
	assert.Equal(t, exitUnavailable, status)
	assert.Regexp(t,
		`^handoffctl: the session with the language model broke off: read /dev/stdin: the terminal is gone\n$`,
		errs.String())
}
