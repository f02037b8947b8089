package mcp

import (
	"context"
	_ "embed" // memory.tmpl
	"fmt"
	"strings"
	"text/template"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// townParameter is the argument of prompts, and of the template, that has the id of a town.
const townParameter = "townId"

func (m *Tools) addPrompts(s *sdk.Server) {
	s.AddPrompt(&sdk.Prompt{
		Name: "town_memory", Title: "What a town remembers",
		Description: "The state of a town and its newest proposals in plain words: what happened to each, and why it was made.",
		Arguments: []*sdk.PromptArgument{{Name: townParameter, Title: "Town", Required: true,
			Description: "the id of the town"}},
	}, m.memoryPrompt)
}

var errNoTown = fmt.Errorf("%w: the prompt needs %s, the id of a town: list_towns has them", errArgument, townParameter)

func (m *Tools) memoryPrompt(ctx context.Context, request *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	id := request.Params.Arguments[townParameter]
	if id == "" {
		return nil, protocolError(errNoTown)
	}
	text, err := m.Remember(ctx, id)
	if err != nil {
		return nil, protocolError(err)
	}
	return &sdk.GetPromptResult{Description: "What " + id + " remembers", Messages: []*sdk.PromptMessage{
		{Role: "user", Content: &sdk.TextContent{Text: text}}}}, nil
}

// memoryRuns is how many runs a memory describes.
const memoryRuns = 10

// Remember returns the memory of a town in plain words.
func (m *Tools) Remember(ctx context.Context, townID string) (string, error) {
	now, err := m.Client.Town(ctx, townID)
	if err != nil {
		return "", err
	}
	var page messages.Runs
	_, err = m.Client.Ask(ctx, wire.RunList, messages.RunList{TownID: townID, Limit: memoryRuns}, &page)
	if err != nil {
		return "", err
	}
	memory, err := m.Client.Memory(ctx, messages.MemoryScope{TownID: &townID, ChronicleLimit: longestMemory})
	if err != nil {
		return "", err
	}
	sentences := map[string]string{}
	for _, entry := range memory.RecentChronicle {
		sentences[entry.RunID] = entry.Message
	}
	view := struct {
		Town      *client.Town
		Proposals []proposalRun
		Counts    any
	}{Town: now}
	for _, run := range page.Runs {
		if _, judged := handoff.ProposalTypeNamed(run.Type); judged { // else it was a signal of an operator
			view.Proposals = append(view.Proposals, proposalRun{RunRow: run, Chronicle: sentences[run.RunID]})
		}
	}
	m.readReasons(ctx, view.Proposals)
	if memory.TownSummary != nil {
		view.Counts = memory.TownSummary.Counts
	}
	var text strings.Builder
	err = memoryText.Execute(&text, view)
	return text.String(), err
}

// proposalRun is a run that judged a proposal. Chronicle is the sentence of the town's chronicle about it, and
// Reason is why the proposal was made; both are "" if they are not on record.
type proposalRun struct {
	messages.RunRow
	Chronicle, Reason string
}

//go:embed memory.tmpl
var memoryTemplate string

var memoryText = template.Must(template.New("").Funcs(template.FuncMap{
	// line returns a text of others on one line, so that it cannot pass for a line of ours.
	"line":    func(text string) string { return strings.Join(strings.Fields(text), " ") },
	"lower":   func(status runevents.RunStatus) string { return strings.ToLower(string(status)) },
	"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
}).Parse(memoryTemplate))

// maxReasonReads is how many runs are read at a time.
const maxReasonReads = 4

// readReasons reads why each proposal was made.
func (m *Tools) readReasons(ctx context.Context, runs []proposalRun) {
	var group errgroup.Group
	group.SetLimit(maxReasonReads)
	for i := range runs {
		group.Go(func() error {
			runs[i].Reason = m.reason(ctx, runs[i].RunID)
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
}

func (m *Tools) reason(ctx context.Context, runID string) string {
	var run struct {
		Fixtures []struct {
			Handoff struct {
				Proposal struct {
					Reason string `json:"reason"`
				} `json:"proposal"`
			} `json:"handoff"`
		} `json:"fixtures"`
	}
	_, err := m.Client.Ask(ctx, wire.RunGet, messages.RunGet{RunID: runID, Fixtures: true}, &run)
	if err != nil || len(run.Fixtures) == 0 {
		return ""
	}
	return run.Fixtures[len(run.Fixtures)-1].Handoff.Proposal.Reason
}
