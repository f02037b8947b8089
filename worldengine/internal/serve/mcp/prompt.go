package mcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"worldengine/handoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/town"
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
	now, err := m.Engine.Town(ctx, townID)
	if err != nil {
		return "", err
	}
	var page messages.Runs
	_, err = m.Engine.Ask(ctx, wire.RunList, messages.RunList{TownID: townID, Limit: memoryRuns}, &page)
	if err != nil {
		return "", err
	}
	memory, err := m.Engine.Memory(ctx, messages.MemoryScope{TownID: &townID, ChronicleLimit: longestMemory})
	if err != nil {
		return "", err
	}
	proposals := slices.DeleteFunc(page.Runs, func(r messages.RunRow) bool { return !isProposal(&r) })
	reasons := m.reasons(ctx, proposals)
	sentences := map[string]string{} // by run, in the words of the chronicle
	for _, entry := range memory.RecentChronicle {
		sentences[entry.RunID] = entry.Message
	}
	var b strings.Builder
	describe(&b, now)
	fmt.Fprintf(&b, "\nThe newest proposals, the last one first:\n")
	for i := range proposals {
		fmt.Fprintf(&b, "- %s%s\n", account(&proposals[i], sentences[proposals[i].RunID]), reasons[i])
	}
	if len(proposals) == 0 {
		b.WriteString("- none is on record\n")
	}
	if summary := memory.TownSummary; summary != nil {
		fmt.Fprintf(&b, "\nOf all proposals on record %d were executed, %d failed, %d were rejected, %d came too late "+
			"(stale) and %d were duplicates.\n", summary.Counts.Executed, summary.Counts.Failed,
			summary.Counts.Rejected, summary.Counts.Stale, summary.Counts.Duplicate)
	}
	b.WriteString("\nUse it to decide what the town needs next. Propose nothing that was refused for a reason " +
		"that still holds.\n")
	return b.String(), nil
}

// isProposal reports whether a run judged a proposal, and was not a signal of an operator.
func isProposal(r *messages.RunRow) bool {
	_, known := handoff.ProposalTypeNamed(r.Type)
	return known
}

// maxReasonReads is how many runs are read at a time.
const maxReasonReads = 4

// reasons returns why each proposal was made, as the end of its line; "" if that is not on record.
func (m *Tools) reasons(ctx context.Context, runs []messages.RunRow) []string {
	reasons := make([]string, len(runs))
	var group errgroup.Group
	group.SetLimit(maxReasonReads)
	for i := range runs {
		group.Go(func() error {
			reasons[i] = m.reason(ctx, runs[i].RunID)
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	return reasons
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
	_, err := m.Engine.Ask(ctx, wire.RunGet, messages.RunGet{RunID: runID, Fixtures: true}, &run)
	if err != nil || len(run.Fixtures) == 0 {
		return ""
	}
	reason := run.Fixtures[len(run.Fixtures)-1].Handoff.Proposal.Reason
	return fmt.Sprintf(" It was made because: %q", reason)
}

// account describes what happened to a proposal. chronicle is the sentence of the town's chronicle about it;
// "" for none.
func account(r *messages.RunRow, chronicle string) string {
	asked := fmt.Sprintf("%s proposed %q", oneLine(r.ActorID), r.Command)
	switch r.ResultStatus {
	case handoff.Executed:
		return cmp.Or(chronicle, asked+": it was executed.")
	case handoff.Failed:
		return asked + fmt.Sprintf(": it was accepted, but could not be carried out (%s).", r.ReasonCode)
	case handoff.Rejected:
		return asked + ": " + refusal(r.ReasonCode)
	case handoff.Stale:
		return asked + ": the town had changed since it was decided, so nothing happened."
	case handoff.Duplicate:
		return asked + " once more: it counted once."
	}
	return asked + fmt.Sprintf(": it is not decided yet (%s).", strings.ToLower(string(r.Status)))
}

func refusal(reason handoff.ReasonCode) string {
	switch reason {
	case handoff.ReasonApprovalRequired:
		return "a person has to approve it, and had not yet."
	case handoff.ReasonApprovalDenied:
		return "a person denied it."
	case handoff.ReasonPreconditionFailed:
		return "it was refused, since a condition that it named did not hold."
	}
	return fmt.Sprintf("it was refused (%s).", reason)
}

// describe writes the state of a town in plain words.
func describe(b *strings.Builder, t *client.Town) {
	snapshot := t.Snapshot
	fmt.Fprintf(b, "The town %s is at day %d.\n", oneLine(t.TownID), snapshot.Day)
	fmt.Fprintf(b, "Threat is %s, scarcity %s, hope %s, dread %s.\n", percent(snapshot.Pressure.Threat),
		percent(snapshot.Pressure.Scarcity), percent(snapshot.Pressure.Hope), percent(snapshot.Pressure.Dread))
	if snapshot.Mission != nil {
		fmt.Fprintf(b, "Its mission is %q (%s).\n", snapshot.Mission.Title, oneLine(snapshot.Mission.ID))
	} else {
		b.WriteString("It has no mission.\n")
	}
	for i := range snapshot.SideQuests {
		fmt.Fprintf(b, "It could accept the mission %q (%s).\n", snapshot.SideQuests[i].Title, oneLine(snapshot.SideQuests[i].ID))
	}
	for i := range snapshot.Projects {
		describeProject(b, &snapshot.Projects[i])
	}
	if t.Paused {
		b.WriteString("It is paused: proposals wait.\n")
	}
	if failure := t.LastFailure; failure != nil {
		fmt.Fprintf(b, "In this very state a proposal failed with %s: the same would fail again.\n", failure.ReasonCode)
	}
}

func describeProject(b *strings.Builder, p *town.Project) {
	fmt.Fprintf(b, "The project %q (%s) is %s at %s.\n", p.Name, oneLine(p.ID), p.Status, percent(p.Progress))
}

// oneLine returns a text of others on one line, so that it cannot pass for a line of ours.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
