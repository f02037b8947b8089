package worldengine

import (
	"cmp"
	"context"

	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/check"
	"worldengine/worldengine/commitlog"
)

// policyOf returns which types of proposals take an approval in a town.
func (e *Engine) policyOf(current commitlog.Entry) *approval.Policy {
	return cmp.Or(current.Policy, &e.config.policy)
}

// approve returns whether a handoff that passed all checks has the approval that its type takes:
// the zero judgement where the type takes none in its town.
func (e *Engine) approve(h *handoff.Handoff, current commitlog.Entry) (approval.Judgement, error) {
	policy := e.policyOf(current)
	if !policy.Requires(h.Proposal.Type) {
		return approval.Judgement{}, nil
	}
	encoded, err := h.MarshalWire()
	if err != nil {
		return approval.Judgement{}, err
	}
	return current.Approvals.Judge(*policy, h, encoded, e.config.Now().UTC()), nil
}

// commitUnapproved stores that a handoff which passed every check may not be executed. The first
// time that is one commit of the town, from which on it waits for a decision.
func (e *Engine) commitUnapproved(
	ctx context.Context, j *judgement, checked check.Result, gate approval.Judgement,
) (Answer, error) {
	j.result = handoff.NewResult(j.Handoff, checked.Unapproved(gate.Reason, gate.Detail))
	townID, after := j.Handoff.Proposal.TownID, j.before
	if !gate.Ask {
		return e.commitRefused(ctx, j)
	}
	answer, err := j.answer()
	if err != nil {
		return Answer{}, err
	}
	after.Approvals = after.Approvals.Ask(
		j.Handoff, j.encoded, j.Identity.Trace, gate.At, e.config.ApprovalTimeout)
	rec := commitlog.Record{
		Kind: commitlog.KindAsked, TownID: townID, Result: answer.JSON, Handoff: j.encoded,
		Run: j.Producer.Run(), WorldPolicy: e.config.policy.Where(j.before.Policy),
		RetryOf: j.retryOf(),
	}
	return answer, e.commitTown(ctx, &rec, j.before.Seq, after)
}
