package mcp

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

// outcome is the outcome of a proposal.
type outcome struct {
	Result jsontext.Value `json:"result"`
	RunID  string         `json:"runId,omitzero"`
	DryRun bool           `json:"dryRun,omitzero"`
	// AppliedBy names the game that would apply the command; if it is set, the result is only what
	// the rules expect.
	AppliedBy string `json:"appliedBy,omitzero"`

	status handoff.Status
}

func outcomeOf(got *client.Outcome) *outcome {
	return &outcome{Result: got.JSON, RunID: got.RunID, DryRun: got.DryRun, AppliedBy: got.Apply,
		status: got.Status()}
}

func (m *Tools) dryRun(ctx context.Context, in proposalArgument) (any, error) {
	h, err := m.makeHandoff(ctx, &in)
	if err != nil {
		return nil, err
	}
	got, err := m.Client.DryRun(ctx, h)
	if err != nil {
		return nil, err
	}
	return outcomeOf(got), nil
}

func (m *Tools) propose(ctx context.Context, call *sdk.CallToolRequest, in proposalArgument) (any, error) {
	kind, err := proposalType(in.Type)
	if err != nil {
		return nil, nothingProposed(err)
	}
	name := m.nameOf(in.TownID, kind, in.Argument)
	if h := m.Open.find(name); h != nil {
		got, err := m.deliver(ctx, call, name, h)
		if err != nil || got.status != handoff.Stale {
			return got, err
		}
		m.Open.remove(name, h) // it was never carried out, and never will be
	}
	h, err := m.makeHandoff(ctx, &in)
	if err != nil {
		return nil, nothingProposed(err)
	}
	return m.deliver(ctx, call, name, h)
}

func (m *Tools) resubmit(ctx context.Context, call *sdk.CallToolRequest, in keyArgument) (any, error) {
	h, known := m.sent.Get(in.Key)
	if !known {
		return nil, nothingProposed(fmt.Errorf(
			"mcp: no proposal of this session has the idempotencyKey %q: propose it", in.Key))
	}
	p := &h.Proposal
	return m.deliver(ctx, call, m.nameOf(p.TownID, p.Type, p.Argument()), h)
}

// nameOf returns the name of the proposals with the same arguments, sent to the same world.
func (m *Tools) nameOf(townID string, kind handoff.ProposalType, argument string) string {
	members := []any{m.Scope, m.Client.World, m.Actor, townID, string(kind), argument}
	return handoff.Hash(handoff.AppendCanonical(nil, members))
}

// maybeExecuted is a part of the error of a call whose proposal the server may have.
const maybeExecuted = "it was proposed, and may be carried out"

// deliver sends a handoff. It is open until the host has its result. The result of an open handoff that was
// accepted before is the first one. An error says whether the handoff may have been carried out, and names
// the key with which it can be sent again.
func (m *Tools) deliver(
	ctx context.Context, call *sdk.CallToolRequest, name string, h *handoff.Handoff,
) (*outcome, error) {
	open := m.Open.find(name)
	if open == nil {
		m.Open.add(name, h)
	}
	m.sent.Add(h.IdempotencyKey, h)
	got, err := m.Client.Send(ctx, h)
	if err == nil && open == h && got.Result.ReasonCode == handoff.ReasonDuplicate {
		got, err = m.Client.Result(ctx, h.IdempotencyKey, h.Proposal.TownID)
	}
	if err != nil && open == nil && refusedForCertain(err) {
		m.Open.remove(name, h)
		return nil, nothingProposed(err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; %s: propose the same again, or resubmit it, for its result; idempotencyKey: %s",
			err, maybeExecuted, h.IdempotencyKey)
	}
	m.expect(call, AnswerCallbacks{
		Done: func() { m.Open.remove(name, h) }, Lost: func() { m.Open.add(name, h) },
	})
	return outcomeOf(got), nil
}

func (m *Tools) expect(call *sdk.CallToolRequest, d AnswerCallbacks) {
	if m.Answers == nil {
		d.Done()
		return
	}
	m.Answers.Expect(call, d)
}

// makeHandoff makes the handoff of a proposal for the present state of its town.
func (m *Tools) makeHandoff(ctx context.Context, in *proposalArgument) (*handoff.Handoff, error) {
	t, err := m.Client.Town(ctx, in.TownID)
	if err != nil {
		return nil, err
	}
	return m.handoffForTown(t, in)
}

// handoffForTown makes the handoffForTown of a proposal for a town, with the preconditions that an agent would give.
func (m *Tools) handoffForTown(t *client.Town, in *proposalArgument) (*handoff.Handoff, error) {
	kind, err := proposalType(in.Type)
	if err != nil {
		return nil, err
	}
	return handoff.New(handoff.Proposal{
		Type: kind, ActorID: m.Actor, TownID: in.TownID, Priority: *cmp.Or(in.Priority, new(0.5)),
		Reason: in.Reason, Args: map[string]string{kind.ArgumentName(): in.Argument},
		Preconditions: kind.Preconditions(in.Argument),
		// With the hash of an earlier state the proposal is stale, whatever its epoch is.
		SnapshotHash: cmp.Or(in.Hash, t.SnapshotHash), DecisionEpoch: t.DecisionEpoch,
	})
}
