package handoffctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine"
	tools "worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/serve/mcp/mcptest"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// startMCP starts the command on pipes, as a program that has a language model does.
func startMCP(t *testing.T, c *cli) *mcptest.Model {
	t.Helper()
	return startMCPWith(t, c, t.TempDir())
}

// startMCPWith is startMCP with a directory for proposals.
func startMCPWith(t *testing.T, c *cli, dir string) *mcptest.Model {
	t.Helper()
	toServer, fromModel := io.Pipe()
	toModel, fromServer := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	engine, err := client.Connect(c.flags["server"], client.Options{})
	require.NoError(t, err)
	engine.Timeout = 30 * time.Second
	ended := make(chan error, 1)
	go func() {
		ended <- tools.ServeLines(ctx, toServer, fromServer, configOf(t, engine, dir))
		_ = fromServer.Close()
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
		engine.Close()
	})
	m, err := mcptest.Connect(t, &mcp.IOTransport{Reader: toModel, Writer: fromModel}, "")
	require.NoError(t, err)
	return m
}

// configOf returns the configuration of a session with a directory for proposals.
func configOf(t *testing.T, engine *client.Client, dir string) tools.Config {
	return tools.Config{Client: engine, Actor: "mayor-7",
		Open: tools.NewOpenProposals(dir, func(err error) { assert.NoError(t, err) })}
}

// proposable and mcpOutcome are parts of answers of the tools.
type (
	proposable struct {
		Type          handoff.ProposalType `json:"type"`
		Arguments     []string             `json:"arguments"`
		Total         int                  `json:"total"`
		Next          string               `json:"next"`
		NeedsApproval bool                 `json:"needsApproval"`
	}
	mcpOutcome struct {
		Result jsontext.Value `json:"result"`
		RunID  string         `json:"runId"`
		DryRun bool           `json:"dryRun"`
	}
)

func TestMCP_ReadTryPropose(t *testing.T) {
	c := online(t)
	m := startMCP(t, c)

	tools, err := m.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		assert.NotEmpty(t, tool.Description)
		sends := tool.Name == "propose" || tool.Name == "resubmit"
		assert.Equal(t, !sends, tool.Annotations.ReadOnlyHint, tool.Name)
	}
	assert.ElementsMatch(t, []string{
		"list_worlds", "list_towns", "read_town", "recall", "list_proposals", "dry_run", "propose", "resubmit",
		"read_result", "read_run",
	}, names)

	assert.Contains(t, m.Ok("list_towns", nil), threatened)
	town := decode[client.Town](t, m.Ok("read_town", map[string]any{"townId": threatened}))
	possible := decode[struct {
		Proposals []proposable `json:"proposals"`
	}](t, m.Ok("list_proposals", map[string]any{"townId": threatened}))
	require.Len(t, possible.Proposals, len(handoff.ProposalTypes()))
	for _, p := range possible.Proposals {
		assert.Equal(t, p.Type == handoff.AdvanceProject,
			slices.Contains(p.Arguments, "wall-perimeter"), p.Type)
	}

	proposal := map[string]any{
		"townId": threatened, "type": "PROJECT_ADVANCE", "argument": "wall-perimeter",
		"reason": "The wall is low.", "snapshotHash": town.SnapshotHash,
	}
	tried := decode[mcpOutcome](t, m.Ok("dry_run", proposal))
	assert.True(t, tried.DryRun)
	assert.Equal(t, town.SnapshotHash, decode[client.Town](t,
		m.Ok("read_town", map[string]any{"townId": threatened})).SnapshotHash)

	got := decode[mcpOutcome](t, m.Ok("propose", proposal))
	result, err := handoff.ParseResult(got.Result, schemas.Limits{})
	require.NoError(t, err)
	assert.Equal(t, handoff.Executed, result.Status)
	assert.JSONEq(t, string(tried.Result), string(got.Result))
	stored := decode[mcpOutcome](t, m.Ok("read_result",
		map[string]any{"idempotencyKey": result.IdempotencyKey, "townId": threatened}))
	assert.Equal(t, got, stored)
	run := m.Ok("read_run", map[string]any{"runId": got.RunID})
	assert.Contains(t, run, `"COMPLETED"`)
	assert.Contains(t, run, `"mayor-7"`)

	assert.Contains(t, m.Ok("recall", map[string]any{"townId": threatened}),
		`"mayor-7 advanced the Perimeter Wall."`)
	assert.Contains(t, m.Ok("recall", nil), got.RunID)

	old := decode[mcpOutcome](t, m.Ok("propose", proposal))
	assert.Contains(t, string(old.Result), `"stale"`, "the town has moved on since it was read")

	delete(proposal, "snapshotHash")
	for _, priority := range []string{"0.5", "0", "1"} { // 0.5 is left out
		if priority != "0.5" {
			proposal["priority"] = jsontext.Value(priority)
		}
		got := decode[mcpOutcome](t, m.Ok("propose", proposal))
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
		text, failed := m.Call(tool, row.arguments)
		assert.True(t, failed, tool)
		assert.Contains(t, text, row.wants, tool)
		assert.Equal(t, 1, strings.Count(text, "nothing was proposed by this call"), text)
	}
	text, failed := m.Call("propose", map[string]any{"townId": threatened})
	assert.True(t, failed)
	assert.Contains(t, text, "required")
	assert.Contains(t, text, "nothing was proposed by this call")
}

// A model that waits for a person sends the same again, and may propose all that the rules accept.
func TestMCP_Approval(t *testing.T) {
	c := onlineWith(t, engine.Config{Settings: worldsettings.Settings{RequireApproval: "PROJECT_ADVANCE"}})
	m := startMCP(t, c)
	c.pipe(`{"projects":[{"id":"done","name":"D","progress":1,"status":"complete"},
		{"id":"wall-perimeter","name":"W","progress":0.5,"status":"active"}]}`,
		"town", "patch", threatened, "-")
	possible := func() map[handoff.ProposalType]proposable {
		byType := map[handoff.ProposalType]proposable{}
		for _, p := range decode[struct {
			Proposals []proposable `json:"proposals"`
		}](t,
			m.Ok("list_proposals", map[string]any{"townId": threatened})).Proposals {
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
			tried := decode[mcpOutcome](t, m.Ok("dry_run", map[string]any{"townId": threatened,
				"type": kind, "argument": argument, "reason": "r"}))
			assert.Regexp(t, `"(EXECUTED|APPROVAL_REQUIRED)"`, string(tried.Result))
		}
	}
	got := decode[mcpOutcome](t, m.Ok("propose", map[string]any{"townId": threatened,
		"type": "PROJECT_ADVANCE", "argument": "wall-perimeter", "reason": "r"}))
	result, err := handoff.ParseResult(got.Result, schemas.Limits{})
	require.NoError(t, err)
	assert.Equal(t, handoff.ReasonApprovalRequired, result.ReasonCode)
	c.ok("approve", "handoff_", "--reason", "do")
	key := map[string]any{"idempotencyKey": result.IdempotencyKey}
	assert.Contains(t, m.Ok("resubmit", key), `EXECUTED`)
	assert.Contains(t, m.Ok("resubmit", key), `duplicate`)
	text, failed := m.Call("resubmit", map[string]any{"idempotencyKey": "x"})
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
	go func() { ended <- tools.ServeLines(t.Context(), in, out, tools.Config{Client: engine}) }()
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

// The end of the input ends the session; a pipe that fails is an error.
func TestMCP_End(t *testing.T) {
	c := online(t)
	assert.Equal(t, outcome{}, c.pipe("", "mcp"))
	var errs bytes.Buffer
	gone := &fs.PathError{Op: "read", Path: "/dev/stdin", Err: errors.New("the terminal is gone")}
	status := c.exec(t.Context(), iotest.ErrReader(gone), io.Discard, &errs, "mcp")
	assert.Equal(t, exitUnavailable, status)
	assert.Regexp(t,
		`^handoffctl: the session with the language model broke off: read /dev/stdin: the terminal is gone\n$`,
		errs.String())
}

// begin are the first lines of a session.
const begin = `{"jsonrpc":"2.0","id":"begin","method":"initialize","params":{"protocolVersion":` +
	`"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// A line that is no JSON-RPC message is answered and ends nothing, and no id is changed.
func TestMCP_Frames(t *testing.T) {
	c := online(t)
	invalid := func(id string) string { return `"id":` + id + `,"error":{"code":-32600,` }
	var lines, want []string
	for line, answer := range map[string]string{
		`{}`: invalid("null"), `[]`: invalid("null"), `7`: invalid("null"), `null`: invalid("null"), `"x"`: invalid("null"),
		`{"id":1,"method":"ping"}`:                    invalid("1"),
		`{"jsonrpc":"1.0","id":2,"method":"ping"}`:    invalid("2"),
		`{"jsonrpc":"2.0","id":true,"method":"ping"}`: invalid("null"),
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:   invalid("null"),
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`: invalid("null"),
		`{"jsonrpc":"2.0","id":3,"method":7}`:         invalid("3"),
		`{"jsonrpc":"2.0","id":33}`:                   invalid("33"),
		`[{"jsonrpc":"2.0","id":4,"method":"ping"}]`:  invalid("null"),
		`not json`: `"id":null,"error":{"code":-32700,`,
		`{"jsonrpc":"2.0","id":5,"method":"ping"`:                                  `"id":null,"error":{"code":-32700,`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`:                  `"id":9007199254740993,"result":{}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                               `"id":1.5,"result":{}`,
		`{"jsonrpc":"2.0","id":6,"method":"ping","params":null}`:                   `"id":6,"result":{}`,
		`{"jsonrpc":"2.0","id":"7","method":"no/such"}`:                            `"id":"7","error":{"code":-32601,`,
		`{"jsonrpc":"2.0","id":8,"result":{}}`:                                     "",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`:         "",
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 4<<20) + `","method":"p"}`: invalid("null"),
	} {
		lines = append(lines, line)
		if answer != "" {
			want = append(want, answer)
		}
	}
	got := c.pipe(begin+strings.Join(lines, "\n"), "mcp")
	require.Equal(t, 0, got.status, got.err)
	answers := strings.Split(strings.TrimSpace(got.out), "\n")
	require.Len(t, answers, len(want)+1)
	for _, answer := range want {
		at := slices.IndexFunc(answers, func(line string) bool {
			return strings.HasPrefix(line, `{"jsonrpc":"2.0",`+answer)
		})
		require.GreaterOrEqual(t, at, 0, answer)
		answers = slices.Delete(answers, at, at+1)
	}
}

// Each argument of a tool has one type, and null is as absent; a member that no tool has is refused.
func TestMCP_Arguments(t *testing.T) {
	m := startMCP(t, online(t))
	tools, err := m.ListTools(t.Context(), nil)
	require.NoError(t, err)
	for _, tool := range tools.Tools {
		properties := tool.InputSchema.(map[string]any)["properties"].(map[string]any)
		for name, property := range properties {
			assert.IsType(t, "", property.(map[string]any)["type"], "%s of %s", name, tool.Name)
			assert.NotEmpty(t, property.(map[string]any)["description"], "%s of %s", name, tool.Name)
		}
	}
	tried := m.Ok("dry_run", map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE",
		"argument": "wall-perimeter", "reason": "r", "priority": nil, "snapshotHash": nil})
	assert.Contains(t, tried, "EXECUTED")
	assert.Contains(t, m.Ok("recall", map[string]any{"townId": nil, "limit": nil}), "recentHistory")
	for tool, arguments := range map[string]map[string]any{
		"list_towns": {"filter": "x"}, "read_town": {"townId": nil}, "list_proposals": {"townId": threatened, "limit": 101},
	} {
		_, failed := m.Call(tool, arguments)
		assert.True(t, failed, tool)
	}
}

// Lists come in pages, with a filter and totals.
func TestMCP_Pages(t *testing.T) {
	m := startMCP(t, online(t))
	all := decode[messages.Towns](t, m.Ok("list_towns", nil))
	require.Greater(t, all.Total, 2)
	require.Len(t, all.Towns, all.Total)
	var ids []string
	for page := (messages.Towns{Next: ""}); ; {
		page = decode[messages.Towns](t, m.Ok("list_towns", map[string]any{"limit": 1, "after": page.Next}))
		require.Equal(t, all.Total, page.Found)
		ids = append(ids, page.Towns[0].TownID)
		if page.Next == "" {
			break
		}
	}
	require.Len(t, ids, all.Total)
	found := decode[messages.Towns](t, m.Ok("list_towns", map[string]any{"text": "THREAT"}))
	require.Equal(t, []int{1, all.Total}, []int{found.Found, found.Total})
	require.Equal(t, threatened, found.Towns[0].TownID)

	list := func(arguments map[string]any) proposable {
		arguments["townId"], arguments["type"] = threatened, "SALVAGE_PLAN"
		got := decode[struct {
			Proposals []proposable `json:"proposals"`
		}](t, m.Ok("list_proposals", arguments)).Proposals
		require.Len(t, got, 1)
		return got[0]
	}
	whole := list(map[string]any{})
	require.Equal(t, 3, whole.Total)
	one := list(map[string]any{"limit": 1})
	rest := list(map[string]any{"after": one.Next})
	require.Equal(t, whole.Arguments, slices.Concat(one.Arguments, rest.Arguments))
	require.Less(t, len(rest.Arguments), 3)
	require.Empty(t, rest.Next)
	require.Equal(t, 1, list(map[string]any{"text": "SCARC"}).Total)

	got := decode[mcpOutcome](t, m.Ok("propose", map[string]any{"townId": threatened, "type": "SALVAGE_PLAN",
		"argument": "general", "reason": "r"}))
	type events struct {
		Events []runevents.Record `json:"events"`
	}
	first := decode[events](t, m.Ok("read_run", map[string]any{"runId": got.RunID, "limit": 2})).Events
	require.Len(t, first, 2)
	require.EqualValues(t, 3, decode[events](t, m.Ok("read_run",
		map[string]any{"runId": got.RunID, "afterSeq": 2})).Events[0].RunSeq)
}

// slowGame is a game that begins to answer when the test says so.
type slowGame struct {
	question, answer chan struct{}
}

func startSlowGame(t *testing.T, c *cli) *slowGame {
	t.Helper()
	nc := natstest.Dial(t, c.flags["server"])
	g := &slowGame{make(chan struct{}, 9), make(chan struct{})}
	_, err := nc.Subscribe(wire.ApplySubject(wire.DefaultWorld, "*"), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if !assert.NoError(t, err) {
			return
		}
		g.question <- struct{}{}
		<-g.answer
		done := apply.Done(command)
		data, err := done.MarshalWire()
		assert.NoError(t, err)
		_ = msg.Respond(data)
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return g
}

// A proposal that is repeated after the host gave up its call is the same handoff, whose result comes then,
// whether the game is still at it or not; also in another session. Once the result was delivered, the same
// arguments are a new proposal.
func TestMCP_ProposeAgain(t *testing.T) {
	for name, row := range map[string]struct{ finished, restarted, hashed bool }{
		"the game is at it":     {},
		"the game has finished": {finished: true},
		"another session":       {restarted: true},
		"another session later": {restarted: true, finished: true},
		"with the hash":         {finished: true, hashed: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := onlineWith(t, engine.Config{Settings: worldsettings.Settings{Binding: apply.Plugin}})
			game, dir := startSlowGame(t, c), t.TempDir()
			m := startMCPWith(t, c, dir)
			before := decode[client.Town](t, m.Ok("read_town", map[string]any{"townId": threatened}))
			proposal := map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE",
				"argument": "wall-perimeter", "reason": "The wall is low."}
			if row.hashed {
				proposal["snapshotHash"] = before.SnapshotHash
			}
			ctx, cancel := context.WithCancel(t.Context())
			called := make(chan error, 1)
			go func() {
				_, err := m.CallTool(ctx, &mcp.CallToolParams{Name: "propose", Arguments: proposal})
				called <- err
			}()
			<-game.question
			cancel()
			require.Error(t, <-called)
			epoch := func() int64 {
				return decode[client.Town](t, m.Ok("read_town", map[string]any{"townId": threatened})).DecisionEpoch
			}
			if row.finished {
				close(game.answer)
				require.Eventually(t, func() bool { return epoch() > before.DecisionEpoch }, time.Minute,
					5*time.Millisecond)
			}
			if row.restarted {
				m = startMCPWith(t, c, dir)
			}
			if !row.finished {
				time.AfterFunc(50*time.Millisecond, func() { close(game.answer) })
			}
			proposal["reason"] = "It is still low." // a model finds other words
			first := decode[mcpOutcome](t, m.Ok("propose", proposal))
			require.Contains(t, string(first.Result), `"EXECUTED"`)
			require.Equal(t, before.DecisionEpoch+1, epoch(), "once")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)

			delete(proposal, "snapshotHash")
			second := decode[mcpOutcome](t, m.Ok("propose", proposal))
			require.Contains(t, string(second.Result), `"EXECUTED"`)
			require.NotEqual(t, first.RunID, second.RunID)
			require.Equal(t, before.DecisionEpoch+2, epoch())
		})
	}
}

// An answer that crosses the host's cancellation was not delivered.
func TestMCP_CrossingCancellation(t *testing.T) {
	c := online(t)
	dir := t.TempDir()
	propose := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"propose","arguments":{"townId":"` +
			threatened + `","type":"PROJECT_ADVANCE","argument":"wall-perimeter","reason":"r"}}}`
	}
	in, host := io.Pipe()
	answers, out := io.Pipe()
	engine, err := client.Connect(c.flags["server"], client.Options{})
	require.NoError(t, err)
	t.Cleanup(engine.Close)
	ended := make(chan error, 1)
	go func() { ended <- tools.ServeLines(t.Context(), in, out, configOf(t, engine, dir)) }()
	lines := bufio.NewScanner(answers)
	say := func(line string) string {
		_, err := io.WriteString(host, line+"\n")
		require.NoError(t, err)
		require.True(t, lines.Scan())
		return lines.Text()
	}
	say(strings.TrimSpace(begin)[:strings.Index(begin, "\n")])
	first := say(propose("2.5"))
	require.Contains(t, first, `EXECUTED`)
	_, err = io.WriteString(host, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2.5}}`+"\n")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(first, `"id":2.5`, `"id":3`, 1), say(propose("3")))
	again := say(propose("4"))
	require.Contains(t, again, `EXECUTED`)
	require.NotEqual(t, strings.Replace(first, `"id":2.5`, `"id":4`, 1), again)
	require.NoError(t, host.Close())
	require.NoError(t, <-ended)
}

// The command starts without a server, says that nothing was proposed, and works once there is one.
func TestMCP_ServerComesLater(t *testing.T) {
	t.Parallel()
	address := natstest.FreeAddress(t)
	in, host := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan int, 1)
	var errs bytes.Buffer
	go func() {
		c := &cli{t: t, flags: map[string]string{"server": "nats://" + address}}
		ended <- c.exec(t.Context(), in, out, &errs, "mcp", "--proposals", t.TempDir())
		_ = out.Close()
	}()
	m, err := mcptest.Connect(t, &mcp.IOTransport{Reader: answers, Writer: host}, "")
	require.NoError(t, err)
	proposal := map[string]any{"townId": threatened, "type": "PROJECT_ADVANCE", "argument": "wall-perimeter", "reason": "r"}
	for tool, arguments := range map[string]map[string]any{"read_town": {"townId": threatened}, "propose": proposal} {
		text, failed := m.Call(tool, arguments)
		require.True(t, failed, tool)
		require.Contains(t, text, "there is no server at nats://"+address, tool)
		require.Contains(t, text, "nothing was proposed by this call", tool)
	}
	_, err = m.ListResources(t.Context(), nil)
	require.ErrorContains(t, err, "nothing was proposed by this call")
	serve(t, func(c *server.Config) { c.Embedded.Listen = address })
	require.Eventually(t, func() bool {
		_, failed := m.Call("read_town", map[string]any{"townId": threatened})
		return !failed
	}, time.Minute, 20*time.Millisecond)
	require.Contains(t, m.Ok("propose", proposal), "EXECUTED")
	require.NoError(t, m.Close())
	require.Equal(t, exitOK, <-ended)
	require.Contains(t, errs.String(), "the tools answer as soon as there is a server")
}
