package worldengine

import (
	"cmp"
	"context"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
)

// DryRun is the answer that a handoff would get now.
type DryRun struct {
	// Answer has no run.
	Answer
	// Apply would apply the command. If it is not apply.Local, the result of an accepted handoff
	// is the one that the rules expect.
	Apply apply.Binding
}

// DryRun judges h against the state of now and stores nothing: the key stays free. It does not wait
// for other handoffs of the town, for a command that is being applied there, or for the end of a pause. It
// returns ErrInProgress if the command of h is being applied.
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
			return DryRun{}, game.InProgress(current.Pending.Run.RunID, townID, current.Pending.Via,
				e.absent.Since(townID))
		}
	}
	prior, err := e.lookupKey(ctx, townID, h.IdempotencyKey, current.Seq,
		time.Now().Add(indexTimeout))
	if err != nil {
		return DryRun{}, err
	}
	run, err := e.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	if err != nil {
		return DryRun{}, err
	}
	out, err := machine.Step(current, e.steps.Input(townID, nil, &machine.Handoff{
		Handoff: h, Prior: prior, Run: run, DryRun: true,
	}), &e.steps.Settings)
	if err != nil {
		return DryRun{}, err
	}
	out.Answer.RunID, out.Answer.First = "", prior
	return DryRun{Answer: *out.Answer, Apply: cmp.Or(current.Apply, e.config.Apply)}, nil
}
