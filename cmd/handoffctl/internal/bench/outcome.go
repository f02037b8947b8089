package bench

import (
	"fmt"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// outcome predicts what the engine decides about h, which proposal made for status, and moves the
// chain's state on. It says by itself what the outcome table of the contract says, so that a defect
// of the engine's checks shows.
func (c *chain) outcome(status handoff.Status, h *handoff.Handoff) (handoff.Outcome, error) {
	before, epoch := c.state, c.state.Epoch()
	var e handoff.Evaluation
	e.DuplicateCheck.Evaluated = true
	e.Preconditions.Failures = []handoff.Failure{}
	e.StaleCheck = handoff.StaleReport{
		Evaluated: true, Passed: status != handoff.Stale,
		ActualSnapshotHash: &before.Hash, ActualDecisionEpoch: &epoch,
	}
	if status == handoff.Stale {
		return handoff.Outcome{Status: status, ReasonCode: handoff.ReasonStaleEpoch, Evaluation: e},
			nil
	}
	e.Preconditions.Evaluated = true
	if status == handoff.Rejected {
		e.Preconditions.Failures = []handoff.Failure{
			{Kind: handoff.ProjectExists, Detail: "Missing project: " + noProject},
		}
		return handoff.Outcome{
			Status: status, ReasonCode: handoff.ReasonPreconditionFailed, Evaluation: e,
		}, nil
	}
	e.Preconditions.Passed = true
	if status == handoff.Failed {
		return handoff.Outcome{
			Status: status, ReasonCode: town.ProjectBlocked, Evaluation: e,
			WorldState: &handoff.WorldState{SnapshotHash: &before.Hash, DecisionEpoch: &epoch},
		}, nil
	}
	after, reason := c.rules.Apply(before.Snapshot, &h.Proposal)
	if reason != "" {
		return handoff.Outcome{}, fmt.Errorf("bench: the rules refuse to execute: %s", reason)
	}
	c.previous, c.state = before, after
	moved := after.Epoch()
	return handoff.Outcome{
		Status: status, ReasonCode: handoff.ReasonExecuted, Evaluation: e,
		WorldState: &handoff.WorldState{SnapshotHash: &after.Hash, DecisionEpoch: &moved},
	}, nil
}

// duplicate is the outcome of sending the last accepted handoff again.
func (c *chain) duplicate() handoff.Outcome {
	var e handoff.Evaluation
	e.Preconditions.Failures = []handoff.Failure{}
	e.DuplicateCheck = handoff.DuplicateReport{
		Evaluated: true, Duplicate: true, DuplicateOf: &c.resultID,
	}
	return handoff.Outcome{
		Status: handoff.Duplicate, ReasonCode: handoff.ReasonDuplicate, Evaluation: e,
	}
}
