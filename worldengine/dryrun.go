package worldengine

import (
	"cmp"
	"context"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/check"
)

// DryRun is the answer that a handoff would get now.
type DryRun struct {
	// Answer has no run.
	Answer
	// Apply is what would apply the command. Where it is not apply.Local, the result of an accepted
	// handoff is what the rules expect.
	Apply apply.Binding
}

// DryRun judges h against the state of now and stores nothing: the key stays free. It does not wait
// for other handoffs of the town, for what is being applied there, or for the end of a pause. It
// returns ErrInProgress where the command of h is being applied.
func (e *Engine) DryRun(ctx context.Context, h *handoff.Handoff) (DryRun, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	townID := h.Proposal.TownID
	current, err := e.log.Load(ctx, townID)
	if err != nil {
		return DryRun{}, err
	}
	if current.Pending != nil {
		pending, err := current.Pending.Read()
		if err != nil {
			return DryRun{}, err
		}
		if pending.Handoff.IdempotencyKey == h.IdempotencyKey {
			return DryRun{}, &apply.InProgressError{
				RunID: current.Pending.Run.RunID, TownID: townID,
				AbsentSince: e.absent.Since(townID),
			}
		}
	}
	prior, err := e.lookupKey(ctx, townID, h.IdempotencyKey, current.Seq,
		time.Now().Add(indexTimeout))
	if err != nil {
		return DryRun{}, err
	}
	d := DryRun{Apply: cmp.Or(current.Apply, e.config.Apply)}
	checked := check.Handoff(h, prior, current.State)
	outcome := checked.Outcome
	gate := approval.Judgement{}
	if checked.Accepted {
		if gate, err = e.approve(h, current); err != nil {
			return DryRun{}, err
		}
	}
	switch {
	case gate.Reason != "":
		outcome = checked.Unapproved(gate.Reason, gate.Detail)
	case checked.Accepted:
		after, reason := e.config.Rules.Apply(current.State.Snapshot, &h.Proposal)
		if reason == "" {
			outcome = checked.Executed(after)
		} else {
			outcome = checked.Failed(reason, current.State)
		}
	}
	d.Result, d.First = handoff.NewResult(h, outcome), prior
	d.JSON, err = d.Result.MarshalWire()
	return d, err
}
