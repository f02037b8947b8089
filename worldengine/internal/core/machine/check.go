package machine

import (
	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

// Verdict is the end of the checks about a handoff. If it is Accepted, the command may be
// applied; otherwise Outcome is the whole answer.
type Verdict struct {
	Accepted bool
	Outcome  handoff.Outcome
}

// Check judges h against the true state. prior is the receipt of h's key, nil if the key is free.
// state is the state of h's town, zero if there is no such town. Only Check orders the checks:
// duplicate, stale, preconditions (Execution Handoff Contract, recommended engine behavior; the
// outcome table of the design). After a refusal no further check is evaluated.
func Check(h *handoff.Handoff, prior *dedupe.Receipt, state town.State) Verdict {
	var e handoff.Evaluation
	e.Preconditions.Failures = []handoff.Failure{}
	refuse := func(status handoff.Status, reason handoff.ReasonCode) Verdict {
		return Verdict{Outcome: handoff.Outcome{Status: status, ReasonCode: reason, Evaluation: e}}
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

	passed := acceptance(&state)
	e.StaleCheck = passed.Outcome.Evaluation.StaleCheck
	e.StaleCheck.Passed = false
	if h.Requirements.ExpectedDecisionEpoch != state.Epoch() {
		return refuse(handoff.Stale, handoff.ReasonStaleEpoch)
	}
	if h.Requirements.ExpectedSnapshotHash != state.Hash {
		return refuse(handoff.Stale, handoff.ReasonStaleHash)
	}
	e.StaleCheck.Passed = true

	if failures := town.Evaluate(h.Preconditions(), state.Snapshot); len(failures) > 0 {
		e.Preconditions = handoff.PreconditionReport{Evaluated: true, Failures: failures}
		return refuse(handoff.Rejected, handoff.ReasonPreconditionFailed)
	}
	return passed
}

// acceptance is the verdict about a handoff that passes every check in a state. It follows from the
// state alone, so the end of a pending command needs no second check.
func acceptance(state *town.State) Verdict {
	epoch := state.Epoch()
	return Verdict{Accepted: true, Outcome: handoff.Outcome{Evaluation: handoff.Evaluation{
		DuplicateCheck: handoff.DuplicateReport{Evaluated: true},
		StaleCheck: handoff.StaleReport{Evaluated: true, Passed: true,
			ActualSnapshotHash: &state.Hash, ActualDecisionEpoch: &epoch},
		Preconditions: handoff.PreconditionReport{Evaluated: true, Passed: true,
			Failures: []handoff.Failure{}},
	}}}
}

// Executed completes the outcome of an accepted handoff whose command was applied.
func (v Verdict) Executed(after town.State) handoff.Outcome {
	return v.accepted(handoff.Executed, handoff.ReasonExecuted, after)
}

// Failed completes the outcome of an accepted handoff whose command could not be applied; unchanged
// is the town's state.
func (v Verdict) Failed(reason handoff.ReasonCode, unchanged town.State) handoff.Outcome {
	return v.accepted(handoff.Failed, reason, unchanged)
}

// Unapproved completes the outcome of a handoff that passed every check but lacks a person's
// approval, or was denied it.
func (v Verdict) Unapproved(reason handoff.ReasonCode, detail string) handoff.Outcome {
	outcome := v.Outcome
	outcome.Status, outcome.ReasonCode = handoff.Rejected, reason
	outcome.Evaluation.Preconditions = handoff.PreconditionReport{
		Evaluated: true, Failures: []handoff.Failure{{Kind: handoff.Approval, Detail: detail}},
	}
	return outcome
}

func (v Verdict) accepted(
	s handoff.Status, reason handoff.ReasonCode, state town.State,
) handoff.Outcome {
	epoch := state.Epoch()
	outcome := v.Outcome
	outcome.Status, outcome.ReasonCode = s, reason
	outcome.WorldState = &handoff.WorldState{SnapshotHash: &state.Hash, DecisionEpoch: &epoch}
	return outcome
}
