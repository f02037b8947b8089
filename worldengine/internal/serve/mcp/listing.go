package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

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

func (m *Tools) listProposals(ctx context.Context, in proposalsArgument) (any, error) {
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
		return nil, errors.New("mcp: after needs a type, since each type has its own pages")
	}
	t, err := m.Client.Town(ctx, in.TownID)
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
func (m *Tools) proposable(
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
		return nil, fmt.Errorf("mcp: after must be one of the arguments of %s, not %q: list them again without it",
			kind, in.After)
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
func (m *Tools) accepted(
	ctx context.Context, t *client.Town, kind handoff.ProposalType, argument string,
) (accepted, needsApproval bool, err error) {
	if t.Paused {
		return true, false, nil
	}
	h, err := m.handoffForTown(t, &proposalArgument{TownID: t.TownID, Type: string(kind),
		Argument: argument, Reason: "list_proposals"})
	if err != nil {
		return false, false, err
	}
	tried, err := m.Client.DryRun(ctx, h)
	if err != nil {
		return false, false, err
	}
	needsApproval = tried.Result.ReasonCode == handoff.ReasonApprovalRequired
	return needsApproval || tried.Status() == handoff.Executed, needsApproval, nil
}
