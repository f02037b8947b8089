package mcp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// DefaultActor is the actor of proposals if nobody names one.
const DefaultActor = "language-model"

// Config configures the tools of a session.
type Config struct {
	// Client asks the world as the session's user; required.
	Client *client.Client
	// Actor is the actorId of the session's proposals; DefaultActor.
	Actor string
	// Open has the open proposals, which outlive the session; by default only the session has them. Scope
	// separates the sessions that share it: the address of the server, or the user.
	Open  *OpenProposals
	Scope string
	// Towns notifies the session of changes; without it the session has no subscriptions.
	Towns *TownNotifier
	// Answers reports which results the host gets; nil if it gets each answer.
	Answers AnswerTracker

	sessionID string // of HTTP
}

// AnswerTracker knows whether a host got the answer to a call.
type AnswerTracker interface {
	// Expect has a callback called when it is known whether the host got the answer to a call. The last callbacks of a
	// call count.
	Expect(call *sdk.CallToolRequest, callbacks AnswerCallbacks)
}

// AnswerCallbacks are called about an answer: Done if the host got it, Lost if it turns out later that it did
// not. Either is nil, or returns at once.
type AnswerCallbacks struct{ Done, Lost func() }

// Tools are the tools, resources and prompts of one session. It is safe for concurrent use.
type Tools struct {
	Config
	server *sdk.Server
	sent   *recent.Map[string, *handoff.Handoff] // by idempotencyKey
}

// maxSent bounds the proposals of a session that can be sent again by their key.
const maxSent = 1000

// New returns the tools of a session.
func New(config Config) *Tools {
	config.Actor = cmp.Or(config.Actor, DefaultActor)
	if config.Open == nil {
		config.Open = NewOpenProposals("", nil)
	}
	m := &Tools{Config: config, sent: recent.NewMap[string, *handoff.Handoff](maxSent)}
	m.server = m.newServer()
	return m
}

// Server returns the protocol's side of the session.
func (m *Tools) Server() *sdk.Server { return m.server }

// Close ends the session's subscriptions.
func (m *Tools) Close() {
	if m.Towns != nil {
		m.Towns.forget(m.server)
	}
}

const instructions = "Towns of a Minecraft world. You may propose one command at a time for a town; the " +
	"engine decides. Read the town, list the possible proposals, try one with dry_run, then propose it. A " +
	"result that is executed has changed the town, so read it again before the next proposal. An error says " +
	"whether anything was proposed. Another agent or a person may change a town at any time: subscribe to its " +
	"resource to hear of it."

func (m *Tools) newServer() *sdk.Server {
	options := &sdk.ServerOptions{
		Instructions: instructions, Logger: slog.New(slog.DiscardHandler),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Prompts: &sdk.PromptCapabilities{},
			Resources: &sdk.ResourceCapabilities{Subscribe: m.Towns != nil}},
		CompletionHandler: m.complete, SchemaCache: resolved,
	}
	if m.Towns != nil {
		options.SubscribeHandler, options.UnsubscribeHandler = m.subscribe, m.unsubscribe
	}
	overHTTP := m.sessionID != ""
	if overHTTP {
		options.GetSessionID = func() string { return m.sessionID }
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "worldengine", Title: "World engine", Version: "1"}, options)
	m.addTools(s)
	m.addResources(s)
	m.addPrompts(s)
	s.AddReceivingMiddleware(dropNullArguments, reportDoubt)
	if overHTTP { // a line waits in its pipe
		s.AddReceivingMiddleware(boundCalls())
	}
	return s
}

func (m *Tools) addTools(s *sdk.Server) {
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true}
	addTool(s, "list_worlds", "Lists the worlds of the server, in pages; world is the one of this session, and all "+
		"tools are about it. For another world the host connects again: to the address /mcp/<world>, or with "+
		"handoffctl mcp --world.", reads, m.listWorlds)
	addTool(s, "list_towns", "Lists the towns with their epochs (the day), in pages; found and total count them.",
		reads, m.listTowns)
	addTool(s, "read_town", "Returns a town: its snapshot (mission, side quests, pressure, projects) and the "+
		"snapshotHash.", reads, m.readTown)
	addTool(s, "recall", "Returns the memory of a town: its chronicle, the newest results of proposals with "+
		"their reasons, and counts.", reads, m.recall)
	addTool(s, "list_proposals", "Lists the possible proposals for a town: each type with the arguments that the "+
		"rules accept now, and whether it requires a person's approval.", reads, m.listProposals)
	addTool(s, "dry_run", "Returns the result that a proposal would get now. Nothing is changed or stored.", reads,
		m.dryRun)
	addSender(s, "propose", "Proposes a command for a town, and returns the result: executed, failed, rejected, "+
		"stale or duplicate, with the reason. Executed changes the town. If no result comes, propose the same "+
		"again or resubmit it: until its result came it is the same proposal, and is executed once. With "+
		"APPROVAL_REQUIRED a person decides first: resubmit it later, and propose nothing similar meanwhile.",
		&sdk.ToolAnnotations{}, m.propose)
	addSender(s, "resubmit", "Sends a proposal of this session again, which is always safe, and returns its result. "+
		"Use it if no answer came, after a pause, or after APPROVAL_REQUIRED.",
		&sdk.ToolAnnotations{IdempotentHint: true}, m.resubmit)
	addTool(s, "read_result", "Returns the result of an accepted proposal by its idempotencyKey.", reads,
		m.readResult)
	addTool(s, "read_run", "Returns the state and the events of a run: how a proposal was checked and applied.",
		reads, m.readRun)
}

// addTool adds a tool that only reads.
func addTool[In any](
	s *sdk.Server, name, description string, hints *sdk.ToolAnnotations,
	answer func(context.Context, In) (any, error),
) {
	addSender(s, name, description, hints,
		func(ctx context.Context, _ *sdk.CallToolRequest, in In) (any, error) {
			v, err := answer(ctx, in)
			return v, nothingProposed(err)
		})
}

// addSender adds a tool whose answer is JSON. The model gets an error as text, with its code.
func addSender[In any](
	s *sdk.Server, name, description string, hints *sdk.ToolAnnotations,
	answer func(context.Context, *sdk.CallToolRequest, In) (any, error),
) {
	tool := &sdk.Tool{Name: name, Description: description, Annotations: hints, InputSchema: schemaOf[In]()}
	sdk.AddTool(s, tool,
		func(ctx context.Context, request *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
			v, err := answer(ctx, request, in)
			if err != nil {
				return nil, nil, modelError(err)
			}
			text, err := json.Marshal(v, json.Deterministic(true))
			if err != nil {
				return nil, nil, fmt.Errorf("the answer cannot be written: %w", err)
			}
			content := []sdk.Content{&sdk.TextContent{Text: string(text)}}
			return &sdk.CallToolResult{Content: content}, nil, nil
		})
}

func (m *Tools) listWorlds(ctx context.Context, in worldsArgument) (any, error) {
	limit, err := limitOf(in.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	page := struct {
		World string `json:"world"`
		messages.Worlds
	}{World: m.Client.World}
	_, err = m.Client.Ask(ctx, wire.WorldsList, messages.WorldsList{Limit: limit, After: in.After}, &page.Worlds)
	return page, err
}

func (m *Tools) listTowns(ctx context.Context, in townsArgument) (any, error) {
	limit, err := limitOf(in.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	return m.towns(ctx, messages.TownList{Text: in.Text, State: in.State, Limit: limit, After: in.After})
}

// towns returns one page of the towns of a query.
func (m *Tools) towns(ctx context.Context, query messages.TownList) (page messages.Towns, err error) {
	_, err = m.Client.Ask(ctx, wire.TownList, query, &page)
	return page, err
}

func (m *Tools) readTown(ctx context.Context, in townArgument) (any, error) {
	return m.Client.Town(ctx, in.TownID)
}

// longestMemory is the most entries that the memory has in a list.
const longestMemory = 5

func (m *Tools) recall(ctx context.Context, in memoryArgument) (any, error) {
	limit, err := limitOf(in.Limit, longestMemory, longestMemory)
	if err != nil {
		return nil, err
	}
	scope := messages.MemoryScope{ChronicleLimit: limit, HistoryLimit: limit}
	if in.TownID != "" {
		scope.TownID = &in.TownID
	}
	return m.Client.Memory(ctx, scope)
}

func (m *Tools) readResult(ctx context.Context, in resultArgument) (any, error) {
	got, err := m.Client.Result(ctx, in.Key, in.TownID)
	if err != nil {
		return nil, err
	}
	return outcomeOf(got), nil
}

func (m *Tools) readRun(ctx context.Context, in runArgument) (any, error) {
	limit, err := limitOf(in.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	run, err := m.Client.Run(ctx, in.RunID)
	if err != nil {
		return nil, err
	}
	var page messages.Events
	_, err = m.Client.Ask(ctx, wire.RunEvents,
		messages.RunEvents{RunID: in.RunID, AfterSeq: int64(in.AfterSeq), Limit: limit}, &page)
	return map[string]any{"run": run, "events": page.Events, "lastEventSeq": page.LastEventSeq}, err
}

// proposalType returns the type of proposal with a name.
func proposalType(name string) (handoff.ProposalType, error) {
	t, known := handoff.ProposalTypeNamed(name)
	if !known {
		return "", fmt.Errorf("mcp: there is no proposal type %q, but %v", name, handoff.ProposalTypes())
	}
	return t, nil
}
