package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
)

// mcpCommand serves the Model Context Protocol.
type mcpCommand struct {
	Actor string `help:"actorId of the proposals." default:"language-model" placeholder:"NAME"`
}

func (mcpCommand) Help() string {
	return `Serves the Model Context Protocol on standard input and output, for programs that let a
language model use tools. The tools list and read towns, recall their past, list the possible
proposals, try a proposal without executing it, propose, and read results and runs. All proposals
have one actor. The server checks a model's proposal like any agent's handoff; a user with the role
agent in the access file limits what the model can do.

Example of a configuration:

    {"mcpServers": {"world": {"command": "handoffctl", "args": ["mcp", "--actor", "mayor-1"]}}}`
}

// Run serves until the input ends.
func (c *mcpCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	return c.serve(ctx, server, a.in, a.out)
}

// serve serves on an input and an output until the input ends.
func (c *mcpCommand) serve(
	ctx context.Context, engine *client.Client, in io.Reader, out io.Writer,
) error {
	tools := &mcpTools{engine: engine, actor: c.Actor}
	pipe := &mcp.IOTransport{Reader: jsonLines(in, out), Writer: unclosed{out}}
	err := tools.server().Run(ctx, answering{pipe})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil // an interrupt, or the end of the input
	}
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	if _, failed := errors.AsType[*fs.PathError](err); failed {
		return fmt.Errorf("the session with the language model broke off: %w", err)
	}
	// The text names types of the library.
	return usagef(
		"the input is not the Model Context Protocol: a line of it is no JSON-RPC message")
}

// unclosed is an output that the library cannot close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// answering is a transport whose input ends only after each request has its answer. The library would
// cancel the requests in hand.
type answering struct{ mcp.Transport }

func (t answering) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	c := &answeringConn{Connection: conn, requests: map[jsonrpc.ID]bool{}}
	c.changed.L = &c.mu
	return c, err
}

type answeringConn struct {
	mcp.Connection

	mu       sync.Mutex
	changed  sync.Cond
	requests map[jsonrpc.ID]bool // without an answer
	closed   bool                // also if the output has failed
}

func (c *answeringConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if request, is := msg.(*jsonrpc.Request); is && request.IsCall() {
		c.requests[request.ID] = true
	}
	for errors.Is(err, io.EOF) && len(c.requests) > 0 && !c.closed {
		c.changed.Wait()
	}
	return msg, err
}

func (c *answeringConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if response, is := msg.(*jsonrpc.Response); is {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.requests, response.ID)
		c.changed.Broadcast()
	}
	return err
}

func (c *answeringConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Connection.Close()
}

// notJSON is the answer to a line that is no JSON.
const notJSON = `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the line is no JSON"}}` + "\n"

// jsonLines returns the lines of in that are JSON. It answers other lines on out, since the library
// would end at such a line.
func jsonLines(in io.Reader, out io.Writer) io.ReadCloser {
	passed, pass := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			if jsontext.Value(line).IsValid() {
				_, _ = pass.Write(line) // fails after the session
			} else if len(bytes.TrimSpace(line)) > 0 {
				_, _ = io.WriteString(out, notJSON) // the session's own write reports the error
			}
			if err != nil {
				_ = pass.CloseWithError(err)
				return
			}
		}
	}()
	return passed
}

// mcpTools are the tools of a language model.
type mcpTools struct {
	engine *client.Client
	actor  string
	sent   sync.Map // of *handoff.Handoff, by idempotencyKey
}

// Arguments of the tools. The model reads the texts of the jsonschema tags.
type (
	townArgument struct {
		TownID string `json:"townId" jsonschema:"the id of the town"`
	}
	resultArgument struct {
		Key    string `json:"idempotencyKey" jsonschema:"the idempotencyKey of the handoff, which propose returns"`
		TownID string `json:"townId" jsonschema:"the id of the town"`
	}
	memoryArgument struct {
		TownID string `json:"townId,omitempty" jsonschema:"the id of the town; left out: all towns"`
	}
	keyArgument struct {
		Key string `json:"idempotencyKey" jsonschema:"the idempotencyKey of the proposal, which propose returned"`
	}
	runArgument struct {
		RunID string `json:"runId" jsonschema:"the id of the run, which propose returns"`
	}
	proposalArgument struct {
		TownID   string   `json:"townId" jsonschema:"the id of the town"`
		Type     string   `json:"type" jsonschema:"one of the types that list_proposals returns"`
		Argument string   `json:"argument" jsonschema:"the target: one of the values that list_proposals returns for the type"`
		Reason   string   `json:"reason" jsonschema:"the reason, in a sentence for people; it is recorded"`
		Priority *float64 `json:"priority,omitempty" jsonschema:"from 0 to 1; 0.5 if it is left out"`
		Hash     string   `json:"snapshotHash,omitempty" jsonschema:"the snapshotHash of the state that you decided by, from read_town; with it the proposal is refused as stale if the town has changed since. Left out: the present state"`
	}
)

func (m *mcpTools) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "worldengine", Title: "World engine",
		Version: "1"},
		&mcp.ServerOptions{
			Instructions: "Towns of a Minecraft world. You may propose one command at a time for " +
				"a town; the engine decides. Read the town, list the possible proposals, try one " +
				"with dry_run, then propose it. A result that is executed has changed the town, " +
				"so read it again before the next proposal.",
		})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	addTool(s, "list_towns", "Lists the towns with their epochs (the day).", reads, m.listTowns)
	addTool(s, "read_town",
		"Returns a town: its snapshot (mission, side quests, pressure, projects) and the "+
			"snapshotHash.",
		reads, m.readTown)
	addTool(s, "recall",
		"Returns the memory of a town: its chronicle, the newest results of proposals with their "+
			"reasons, and counts.",
		reads, m.recall)
	addTool(s, "list_proposals",
		"Lists the possible proposals for a town: each type with the arguments that the rules "+
			"accept now, and whether it requires a person's approval.",
		reads, m.listProposals)
	addTool(s, "dry_run",
		"Returns the result that a proposal would get now. Nothing is changed or stored.", reads,
		m.dryRun)
	addTool(s, "propose",
		"Proposes a command for a town, and returns the result: executed, failed, rejected, "+
			"stale or duplicate, with the reason. Executed changes the town. If no result "+
			"comes, resubmit it: the command may have been executed. With APPROVAL_REQUIRED a "+
			"person decides first: resubmit it later, and propose nothing similar meanwhile.",
		&mcp.ToolAnnotations{}, m.propose)
	addTool(s, "resubmit",
		"Sends a proposal of this session again, which is always safe, and returns its result. "+
			"Use it if no answer came, after a pause, or after APPROVAL_REQUIRED.",
		&mcp.ToolAnnotations{IdempotentHint: true}, m.resubmit)
	addTool(s, "read_result", "Returns the result of an accepted proposal by its idempotencyKey.",
		reads, m.readResult)
	addTool(s, "read_run",
		"Returns the state and the events of a run: how a proposal was checked and applied.", reads,
		m.readRun)
	return s
}

// addTool adds a tool whose answer is JSON. The model gets an error as text, with its code.
func addTool[In any](
	s *mcp.Server, name, description string, hints *mcp.ToolAnnotations,
	answer func(context.Context, In) (any, error),
) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description, Annotations: hints},
		func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			v, err := answer(ctx, in)
			if err != nil {
				return nil, nil, toolError(err)
			}
			text, err := json.Marshal(v, json.Deterministic(true))
			if err != nil {
				return nil, nil, fmt.Errorf("the answer cannot be written: %w", err)
			}
			content := []mcp.Content{&mcp.TextContent{Text: string(text)}}
			return &mcp.CallToolResult{Content: content}, nil, nil
		})
}

// toolError returns an error whose text has the details, with their paths.
func toolError(err error) error {
	_, _, details := classify(err)
	return errors.New(strings.Join(append([]string{sentence(err)}, linesOf(details)...), "; "))
}

func (m *mcpTools) listTowns(ctx context.Context, _ struct{}) (any, error) {
	towns, err := first(m.engine.Towns(ctx, messages.TownList{}), 0)
	return map[string]any{"towns": towns}, err
}

func (m *mcpTools) readTown(ctx context.Context, in townArgument) (any, error) {
	return m.engine.Town(ctx, in.TownID)
}

func (m *mcpTools) recall(ctx context.Context, in memoryArgument) (any, error) {
	scope := messages.MemoryScope{ChronicleLimit: 5, HistoryLimit: 5}
	if in.TownID != "" {
		scope.TownID = &in.TownID
	}
	return m.engine.Memory(ctx, scope)
}

// proposable is a type that may be proposed for a town, and its possible arguments.
type proposable struct {
	Type      handoff.ProposalType `json:"type"`
	Does      string               `json:"does"`
	Argument  string               `json:"argument"`
	Arguments []string             `json:"arguments"`
	// NeedsApproval says that a person decides about the type.
	NeedsApproval bool `json:"needsApproval,omitzero"`
}

func (m *mcpTools) listProposals(ctx context.Context, in townArgument) (any, error) {
	t, err := m.engine.Town(ctx, in.TownID)
	if err != nil {
		return nil, err
	}
	list := []proposable{}
	for _, kind := range handoff.ProposalTypes() {
		spec := kind.Spec()
		p := proposable{Type: kind, Does: spec.Does, Argument: spec.Argument, Arguments: []string{},
			NeedsApproval: slices.Contains(t.Approval, kind)}
		for _, argument := range t.Snapshot.Arguments(kind) {
			accepted, needsApproval, err := m.accepted(ctx, t, kind, argument)
			if err != nil {
				return nil, err
			}
			if accepted {
				p.Arguments = append(p.Arguments, argument)
			}
			p.NeedsApproval = p.NeedsApproval || needsApproval
		}
		list = append(list, p)
	}
	return map[string]any{
		"townId": t.TownID, "snapshotHash": t.SnapshotHash,
		"decisionEpoch": t.DecisionEpoch, "proposals": list,
	}, nil
}

// accepted reports whether the rules accept a proposal now, and whether a person has to approve it.
// While the town is paused, accepted accepts every proposal, since nothing is judged.
func (m *mcpTools) accepted(
	ctx context.Context, t *client.Town, kind handoff.ProposalType, argument string,
) (accepted, needsApproval bool, err error) {
	if t.Paused {
		return true, false, nil
	}
	h, err := m.handoff(t, &proposalArgument{TownID: t.TownID, Type: string(kind),
		Argument: argument, Reason: "list_proposals"})
	if err != nil {
		return false, false, err
	}
	tried, err := m.engine.DryRun(ctx, h)
	if err != nil {
		return false, false, err
	}
	needsApproval = tried.Result.ReasonCode == handoff.ReasonApprovalRequired
	return needsApproval || tried.Status() == handoff.Executed, needsApproval, nil
}

// handoff makes the handoff of a proposal for a town.
func (m *mcpTools) handoff(t *client.Town, in *proposalArgument) (*handoff.Handoff, error) {
	kind, err := proposalType(in.Type)
	if err != nil {
		return nil, err
	}
	return makeHandoff(handoff.Proposal{
		Type: kind, ActorID: m.actor, TownID: in.TownID, Priority: *cmp.Or(in.Priority, new(0.5)),
		Reason: in.Reason,
		// With the hash of an earlier state the proposal is stale, whatever its epoch is.
		SnapshotHash: cmp.Or(in.Hash, t.SnapshotHash), DecisionEpoch: t.DecisionEpoch,
	}, in.Argument, true)
}

// mcpOutcome is the outcome of a proposal.
type mcpOutcome struct {
	Result jsontext.Value `json:"result"`
	RunID  string         `json:"runId,omitzero"`
	DryRun bool           `json:"dryRun,omitzero"`
	// AppliedBy names the game that would apply the command; if it is set, the result is only what
	// the rules expect.
	AppliedBy string `json:"appliedBy,omitzero"`
}

func (m *mcpTools) dryRun(ctx context.Context, in proposalArgument) (any, error) {
	h, err := m.proposed(ctx, &in)
	if err != nil {
		return nil, err
	}
	return outcomeOf(m.engine.DryRun(ctx, h))
}

func (m *mcpTools) propose(ctx context.Context, in proposalArgument) (any, error) {
	h, err := m.proposed(ctx, &in)
	if err != nil {
		return nil, err
	}
	m.sent.Store(h.IdempotencyKey, h)
	return m.send(ctx, h)
}

func (m *mcpTools) resubmit(ctx context.Context, in keyArgument) (any, error) {
	h, sent := m.sent.Load(in.Key)
	if !sent {
		return nil, usagef("no proposal of this session has the idempotencyKey %s: propose it",
			show(in.Key))
	}
	return m.send(ctx, h.(*handoff.Handoff))
}

// send sends a handoff. An error names the key with which the handoff can be sent again.
func (m *mcpTools) send(ctx context.Context, h *handoff.Handoff) (any, error) {
	got, err := outcomeOf(m.engine.Send(ctx, h))
	if err != nil {
		return nil, fmt.Errorf("%w; idempotencyKey: %s", err, h.IdempotencyKey)
	}
	return got, nil
}

// proposed makes the handoff of a proposal for the present state of its town.
func (m *mcpTools) proposed(ctx context.Context, in *proposalArgument) (*handoff.Handoff, error) {
	t, err := m.engine.Town(ctx, in.TownID)
	if err != nil {
		return nil, err
	}
	return m.handoff(t, in)
}

func outcomeOf(got *client.Outcome, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return mcpOutcome{Result: got.JSON, RunID: got.RunID, DryRun: got.DryRun, AppliedBy: got.Apply},
		nil
}

func (m *mcpTools) readResult(ctx context.Context, in resultArgument) (any, error) {
	return outcomeOf(m.engine.Result(ctx, in.Key, in.TownID))
}

func (m *mcpTools) readRun(ctx context.Context, in runArgument) (any, error) {
	run, err := m.engine.Run(ctx, in.RunID)
	if err != nil {
		return nil, err
	}
	_, all, err := eventsOf(ctx, m.engine, in.RunID, 0)
	return map[string]any{"run": run, "events": all.Events}, err
}
