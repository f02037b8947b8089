package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// mcpCommand serves the Model Context Protocol.
type mcpCommand struct {
	Actor     string `help:"actorId of the proposals." default:"language-model" placeholder:"NAME"`
	Proposals string `help:"Directory of the proposals whose result was not delivered, for the next session; in the user's cache directory by default." placeholder:"DIR"`
}

func (mcpCommand) Help() string {
	return `Serves the Model Context Protocol on standard input and output, for programs that let a
language model use tools. The tools list and read towns, recall their past, list the possible
proposals, try a proposal without executing it, propose, and read results and runs. All proposals
have one actor. A proposal that is repeated before its result was delivered is the same one. The server checks a model's proposal like any agent's handoff; a user with the role
agent in the access file limits what the model can do.

Example of a configuration:

    {"mcpServers": {"world": {"command": "handoffctl", "args": ["mcp", "--actor", "mayor-1"]}}}`
}

// Run serves until the input ends.
func (c *mcpCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	tools := &mcpTools{engine: server, actor: c.Actor, server: a.flags.Server,
		open: openOf(c.Proposals, func(err error) { _, _ = fmt.Fprintln(a.err, "handoffctl: "+sentence(err)) })}
	return tools.serve(ctx, a.in, a.out)
}

// serve serves on an input and an output until the input ends.
func (m *mcpTools) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	m.conn = newMCPConn(in, out)
	err := m.mcpServer().Run(ctx, m.conn)
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil // an interrupt, or the end of the input
	}
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return fmt.Errorf("the session with the language model broke off: %w", err)
}

// mcpTools are the tools of a language model.
type mcpTools struct {
	engine *client.Client
	actor  string
	server string // its address
	open   *openProposals
	conn   *mcpConn
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
	townsArgument struct {
		Text  string `json:"text,omitempty" jsonschema:"only the towns whose ids contain this text"`
		State string `json:"state,omitempty" jsonschema:"only the towns in this state: paused, applying, noPlugin, waiting or inDoubt"`
		Limit int    `json:"limit,omitempty" jsonschema:"the largest number of towns, from 1 to 200; 50 if it is left out"`
		After string `json:"after,omitempty" jsonschema:"go on behind this town: next of the previous page"`
	}
	memoryArgument struct {
		TownID string `json:"townId,omitempty" jsonschema:"the id of the town; left out: all towns"`
		Limit  int    `json:"limit,omitempty" jsonschema:"the largest number of entries of each list, from 1 to 16; 5 if it is left out"`
	}
	proposalsArgument struct {
		TownID string `json:"townId" jsonschema:"the id of the town"`
		Type   string `json:"type,omitempty" jsonschema:"only this type of proposal"`
		Text   string `json:"text,omitempty" jsonschema:"only the arguments that contain this text"`
		Limit  int    `json:"limit,omitempty" jsonschema:"the largest number of arguments of each type to try, from 1 to 100; 20 if it is left out"`
		After  string `json:"after,omitempty" jsonschema:"with a type: go on behind this argument, next of the previous page"`
	}
	keyArgument struct {
		Key string `json:"idempotencyKey" jsonschema:"the idempotencyKey of the proposal, which propose returned"`
	}
	runArgument struct {
		RunID    string `json:"runId" jsonschema:"the id of the run, which propose returns"`
		AfterSeq int    `json:"afterSeq,omitempty" jsonschema:"only the events behind this runSeq: the last one of the previous page"`
		Limit    int    `json:"limit,omitempty" jsonschema:"the largest number of events, from 1 to 200; 50 if it is left out"`
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

func (m *mcpTools) mcpServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "worldengine", Title: "World engine",
		Version: "1"},
		&mcp.ServerOptions{
			Instructions: "Towns of a Minecraft world. You may propose one command at a time for " +
				"a town; the engine decides. Read the town, list the possible proposals, try one " +
				"with dry_run, then propose it. A result that is executed has changed the town, " +
				"so read it again before the next proposal.",
		})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	addTool(s, "list_towns", "Lists the towns with their epochs (the day), in pages; found and total count them.", reads, m.listTowns)
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
	addSender(s, "propose",
		"Proposes a command for a town, and returns the result: executed, failed, rejected, "+
			"stale or duplicate, with the reason. Executed changes the town. If no result "+
			"comes, propose the same again or resubmit it: until its result came it is the "+
			"same proposal, and is executed once. With APPROVAL_REQUIRED a "+
			"person decides first: resubmit it later, and propose nothing similar meanwhile.",
		&mcp.ToolAnnotations{}, m.propose)
	addSender(s, "resubmit",
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

// addTool adds a tool that needs no request.
func addTool[In any](
	s *mcp.Server, name, description string, hints *mcp.ToolAnnotations,
	answer func(context.Context, In) (any, error),
) {
	addSender(s, name, description, hints,
		func(ctx context.Context, _ *mcp.CallToolRequest, in In) (any, error) { return answer(ctx, in) })
}

// addSender adds a tool whose answer is JSON. The model gets an error as text, with its code.
func addSender[In any](
	s *mcp.Server, name, description string, hints *mcp.ToolAnnotations,
	answer func(context.Context, *mcp.CallToolRequest, In) (any, error),
) {
	tool := &mcp.Tool{Name: name, Description: description, Annotations: hints, InputSchema: schemaOf[In]()}
	mcp.AddTool(s, tool,
		func(ctx context.Context, request *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			v, err := answer(ctx, request, in)
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

// schemaOf returns the schema of a tool's arguments. Each has one type: some hosts refuse several. The
// library's own schema of a pointer has null too.
func schemaOf[In any]() map[string]any {
	names := map[reflect.Kind]string{reflect.String: "string", reflect.Float64: "number", reflect.Int: "integer"}
	properties, required := map[string]any{}, []string{}
	for field := range fields(reflect.TypeFor[In]()) {
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		if option == "" {
			required = append(required, name)
		}
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		properties[name] = map[string]any{"type": names[kind.Kind()], "description": field.Tag.Get("jsonschema")}
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// fields iterates over the fields of a struct.
func fields(of reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if !yield(of.Field(i)) {
				return
			}
		}
	}
}

// toolError returns an error whose text has the details, with their paths.
func toolError(err error) error {
	_, _, details := classify(err)
	return errors.New(strings.Join(append([]string{sentence(err)}, linesOf(details)...), "; "))
}

func (m *mcpTools) listTowns(ctx context.Context, in townsArgument) (any, error) {
	limit, err := limitOf(in.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	var page messages.Towns
	_, err = m.engine.Ask(ctx, wire.TownList,
		messages.TownList{Text: in.Text, State: in.State, Limit: limit, After: in.After}, &page)
	return page, err
}

// limitOf returns the limit of a page.
func limitOf(given, usual, most int) (int, error) {
	if given < 0 || given > most {
		return 0, usagef("limit must be from 1 to %d, not %d", most, given)
	}
	return cmp.Or(given, usual), nil
}

func (m *mcpTools) readTown(ctx context.Context, in townArgument) (any, error) {
	return m.engine.Town(ctx, in.TownID)
}

func (m *mcpTools) recall(ctx context.Context, in memoryArgument) (any, error) {
	limit, err := limitOf(in.Limit, 5, 16)
	if err != nil {
		return nil, err
	}
	scope := messages.MemoryScope{ChronicleLimit: limit, HistoryLimit: limit}
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
	// Total counts all arguments of the type that the filter lets through, accepted or not. Next is the
	// after of the next page.
	Total int    `json:"total"`
	Next  string `json:"next,omitzero"`
	// NeedsApproval says that a person decides about the type.
	NeedsApproval bool `json:"needsApproval,omitzero"`
}

func (m *mcpTools) listProposals(ctx context.Context, in proposalsArgument) (any, error) {
	limit, err := limitOf(in.Limit, 20, 100)
	if err != nil {
		return nil, err
	}
	kinds := handoff.ProposalTypes()
	if in.Type != "" {
		kind, err := proposalType(in.Type)
		if err != nil {
			return nil, err
		}
		kinds = []handoff.ProposalType{kind}
	} else if in.After != "" {
		return nil, usagef("after needs a type, since each type has its own pages")
	}
	t, err := m.engine.Town(ctx, in.TownID)
	if err != nil {
		return nil, err
	}
	list := []*proposable{}
	for _, kind := range kinds {
		p, err := m.proposable(ctx, t, kind, &in, limit)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return map[string]any{
		"townId": t.TownID, "snapshotHash": t.SnapshotHash,
		"decisionEpoch": t.DecisionEpoch, "proposals": list,
	}, nil
}

// proposable returns a page of the arguments of a type that the rules accept.
func (m *mcpTools) proposable(
	ctx context.Context, t *client.Town, kind handoff.ProposalType, in *proposalsArgument, limit int,
) (*proposable, error) {
	spec := kind.Spec()
	p := &proposable{Type: kind, Does: spec.Does, Argument: spec.Argument, Arguments: []string{},
		NeedsApproval: slices.Contains(t.Approval, kind)}
	all := slices.DeleteFunc(slices.Clone(t.Snapshot.Arguments(kind)), func(argument string) bool {
		return !strings.Contains(strings.ToLower(argument), strings.ToLower(in.Text))
	})
	p.Total = len(all)
	if at := slices.Index(all, in.After); at >= 0 {
		all = all[at+1:]
	} else if in.After != "" {
		return nil, usagef("after must be one of the arguments of %s, not %s: begin again without it", kind,
			show(in.After))
	}
	if len(all) > limit {
		all = all[:limit]
		p.Next = all[limit-1]
	}
	for _, argument := range all {
		accepted, needsApproval, err := m.accepted(ctx, t, kind, argument)
		if err != nil {
			return nil, err
		}
		if accepted {
			p.Arguments = append(p.Arguments, argument)
		}
		p.NeedsApproval = p.NeedsApproval || needsApproval
	}
	return p, nil
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

	status handoff.Status
}

func (m *mcpTools) dryRun(ctx context.Context, in proposalArgument) (any, error) {
	h, err := m.proposed(ctx, &in)
	if err != nil {
		return nil, err
	}
	got, err := m.engine.DryRun(ctx, h)
	if err != nil {
		return nil, err
	}
	return outcomeOf(got), nil
}

func (m *mcpTools) propose(
	ctx context.Context, request *mcp.CallToolRequest, in proposalArgument,
) (any, error) {
	kind, err := proposalType(in.Type)
	if err != nil {
		return nil, err
	}
	name := m.nameOf(in.TownID, kind, in.Argument)
	if h := m.open.find(name); h != nil {
		got, err := m.deliver(ctx, request, name, h)
		if err != nil || got.status != handoff.Stale {
			return got, err
		}
		m.open.remove(name, h) // it was never carried out, and never will be
	}
	h, err := m.proposed(ctx, &in)
	if err != nil {
		return nil, err
	}
	return m.deliver(ctx, request, name, h)
}

// nameOf returns the name of the proposals with the same arguments, sent to the same world.
func (m *mcpTools) nameOf(townID string, kind handoff.ProposalType, argument string) string {
	members := []any{m.server, m.engine.World, m.actor, townID, string(kind), argument}
	return handoff.Hash(handoff.AppendCanonical(nil, members))
}

func (m *mcpTools) resubmit(
	ctx context.Context, request *mcp.CallToolRequest, in keyArgument,
) (any, error) {
	sent, known := m.sent.Load(in.Key)
	if !known {
		return nil, usagef("no proposal of this session has the idempotencyKey %s: propose it",
			show(in.Key))
	}
	h := sent.(*handoff.Handoff)
	p := &h.Proposal
	return m.deliver(ctx, request, m.nameOf(p.TownID, p.Type, p.Argument()), h)
}

// deliver sends a handoff. It is open until the host has its result. The result of an open handoff that was
// accepted before is the first one. An error names the key with which the handoff can be sent again.
func (m *mcpTools) deliver(
	ctx context.Context, request *mcp.CallToolRequest, name string, h *handoff.Handoff,
) (*mcpOutcome, error) {
	open := m.open.find(name)
	if open == nil {
		m.open.add(name, h)
	}
	m.sent.Store(h.IdempotencyKey, h)
	got, err := m.engine.Send(ctx, h)
	if err == nil && open == h && got.Result.ReasonCode == handoff.ReasonDuplicate {
		got, err = m.engine.Result(ctx, h.IdempotencyKey, h.Proposal.TownID)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; idempotencyKey: %s", err, h.IdempotencyKey)
	}
	m.conn.expect(request, delivery{
		done: func() { m.open.remove(name, h) }, lost: func() { m.open.add(name, h) },
	})
	return outcomeOf(got), nil
}

// proposed makes the handoff of a proposal for the present state of its town.
func (m *mcpTools) proposed(ctx context.Context, in *proposalArgument) (*handoff.Handoff, error) {
	t, err := m.engine.Town(ctx, in.TownID)
	if err != nil {
		return nil, err
	}
	return m.handoff(t, in)
}

func outcomeOf(got *client.Outcome) *mcpOutcome {
	return &mcpOutcome{Result: got.JSON, RunID: got.RunID, DryRun: got.DryRun, AppliedBy: got.Apply,
		status: got.Status()}
}

func (m *mcpTools) readResult(ctx context.Context, in resultArgument) (any, error) {
	got, err := m.engine.Result(ctx, in.Key, in.TownID)
	if err != nil {
		return nil, err
	}
	return outcomeOf(got), nil
}

func (m *mcpTools) readRun(ctx context.Context, in runArgument) (any, error) {
	limit, err := limitOf(in.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	run, err := m.engine.Run(ctx, in.RunID)
	if err != nil {
		return nil, err
	}
	var page messages.Events
	_, err = m.engine.Ask(ctx, wire.RunEvents,
		messages.RunEvents{RunID: in.RunID, AfterSeq: int64(in.AfterSeq), Limit: limit}, &page)
	return map[string]any{"run": run, "events": page.Events, "lastEventSeq": page.LastEventSeq}, err
}
