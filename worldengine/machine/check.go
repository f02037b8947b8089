package machine

import (
	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// Checked is the verdict of the checks about a handoff. If it is Accepted, the command may be
// applied; otherwise Outcome is the whole answer.
type Checked struct {
	Accepted bool
	Outcome  handoff.Outcome
}

// Check judges h against the true state: prior is the receipt of its key, nil if the key is free;
// state is its town, zero if there is none. It alone orders the checks: duplicate, stale,
// preconditions (Execution Handoff Contract, recommended engine behavior; the outcome table of the
// design). A check after a refusal is not evaluated.
func Check(h *handoff.Handoff, prior *dedupe.Receipt, state town.State) Checked {
	var e handoff.Evaluation
	e.Preconditions.Failures = []handoff.Failure{}
	refuse := func(status handoff.Status, reason handoff.ReasonCode) Checked {
		return Checked{Outcome: handoff.Outcome{Status: status, ReasonCode: reason, Evaluation: e}}
	}

	e.DuplicateCheck.Evaluated = true
	if prior != nil {
		e.DuplicateCheck.Duplicate = true
		e.DuplicateCheck.DuplicateOf = &prior.ResultID
		if prior.HandoffID != h.HandoffID {
			return refuse(handoff.Duplicate, handoff.ReasonKeyReused)
		}
		return refuse(handoff.Duplicate, handoff.ReasonDuplicate)
	}

	if !state.Exists() {
		e.Preconditions.Evaluated = true
		e.Preconditions.Failures = []handoff.Failure{
			{Kind: handoff.TownExists, Detail: "Unknown town: " + h.Proposal.TownID},
		}
		return refuse(handoff.Rejected, handoff.ReasonUnknownTown)
	}

	epoch := state.Epoch()
	e.StaleCheck = handoff.StaleReport{
		Evaluated: true, ActualSnapshotHash: &state.Hash, ActualDecisionEpoch: &epoch,
	}
	if h.Requirements.ExpectedDecisionEpoch != epoch {
		return refuse(handoff.Stale, handoff.ReasonStaleEpoch)
	}
	if h.Requirements.ExpectedSnapshotHash != state.Hash {
		return refuse(handoff.Stale, handoff.ReasonStaleHash)
	}
	e.StaleCheck.Passed = true

	e.Preconditions.Evaluated = true
	e.Preconditions.Failures = town.Evaluate(h.Preconditions(), state.Snapshot)
	if len(e.Preconditions.Failures) > 0 {
		return refuse(handoff.Rejected, handoff.ReasonPreconditionFailed)
	}
	e.Preconditions.Passed = true
	return Checked{Accepted: true, Outcome: handoff.Outcome{Evaluation: e}}
}

// Executed completes the outcome of an accepted handoff whose command was applied.
func (c Checked) Executed(after town.State) handoff.Outcome {
	return c.accepted(handoff.Executed, handoff.ReasonExecuted, after)
}

// Failed completes the outcome of an accepted handoff whose command could not be applied;
// unchanged is the state that stays.
func (c Checked) Failed(reason handoff.ReasonCode, unchanged town.State) handoff.Outcome {
	return c.accepted(handoff.Failed, reason, unchanged)
}

// Unapproved completes the outcome of a handoff that passed every check but lacks a person's
// approval, or was denied it.
func (c Checked) Unapproved(reason handoff.ReasonCode, detail string) handoff.Outcome {
	outcome := c.Outcome
	outcome.Status, outcome.ReasonCode = handoff.Rejected, reason
	outcome.Evaluation.Preconditions = handoff.PreconditionReport{
		Evaluated: true, Failures: []handoff.Failure{{Kind: handoff.Approval, Detail: detail}},
	}
	return outcome
}

func (c Checked) accepted(
	s handoff.Status, reason handoff.ReasonCode, state town.State,
) handoff.Outcome {
	epoch := state.Epoch()
	outcome := c.Outcome
	outcome.Status, outcome.ReasonCode = s, reason
	outcome.WorldState = &handoff.WorldState{SnapshotHash: &state.Hash, DecisionEpoch: &epoch}
	return outcome
}
