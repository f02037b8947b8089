package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
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
	engine, err := client.Connect(c.env["NATS_URL"], client.Options{})
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

func TestALanguageModelReadsTriesAndProposes(t *testing.T) {
	c := online(t)
	m := startMCP(t, c)

	tools, err := m.session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		assert.NotEmpty(t, tool.Description)
		assert.Equal(t, tool.Name != "propose", tool.Annotations.ReadOnlyHint, tool.Name)
	}
	assert.ElementsMatch(t, []string{
		"list_towns", "read_town", "recall", "list_proposals", "dry_run", "propose",
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
}

func TestALanguageModelIsToldWhatIsWrong(t *testing.T) {
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

// What the model says is told apart from a pipe that fails.
func TestMCPSaysWhyItEnds(t *testing.T) {
	c := online(t)
	got := c.pipe("hello\n", "mcp")
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "the input is not the Model Context Protocol")

	var errs bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }
	status := run(t.Context(), []string{"mcp"},
		iotest.ErrReader(errors.New("the terminal is gone")), io.Discard, &errs, lookup)
	assert.Equal(t, exitUnavailable, status)
	assert.Regexp(t,
		`^handoffctl: the session with the language model broke off: the terminal is gone\n$`,
		errs.String())
}

func TestMCPEndsWithItsInput(t *testing.T) {
	got := online(t).pipe("", "mcp")
	assert.Equal(t, exitOK, got.status, got.err)
	assert.Empty(t, got.out)
}
