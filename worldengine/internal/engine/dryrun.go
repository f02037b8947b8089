package engine

import (
	"cmp"
	"context"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
)

// DryRun is the answer that a handoff would get now.
type DryRun struct {
	// Answer has no run.
	Answer
	// Binding is the one that would apply the command. Unless it is apply.Local, the result of an
	// accepted handoff is only the one that the rules expect.
	Binding apply.Binding
}

// DryRun judges h against the current state and stores nothing: the key stays free. It waits
// neither for other handoffs or the pending command of the town, nor for the end of a pause. It
// returns ErrInProgress if the command of h is being applied.
func (hs *Handoffs) DryRun(ctx context.Context, h *handoff.Handoff) (DryRun, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	townID := h.Proposal.TownID
	var current machine.Town
	var prior *dedupe.Receipt
	err := hs.log.RetryLostRaces(ctx, func() (err error) { // the town may change between the two looks
		if current, err = hs.log.Load(ctx, townID); err != nil {
			return err
		}
		if err = hs.dispatcher.CheckKey(townID, h.IdempotencyKey, h.HandoffID); err != nil {
			return err
		}
		prior, err = hs.receipts.lookup(ctx, townID, h.IdempotencyKey, &current, current.Seq, indexTimeout)
		return err
	})
	if err != nil {
		return DryRun{}, err
	}
	run, err := hs.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	if err != nil {
		return DryRun{}, err
	}
	out, err := machine.Step(current, hs.stepper.Input(townID, nil, &machine.Judge{
		Handoff: h, Prior: prior, Run: run, DryRun: true,
	}), &hs.stepper.Settings)
	if err != nil {
		return DryRun{}, err
	}
	binding := cmp.Or(current.Binding, hs.stepper.Settings.Binding)
	if out.Record.Subject() == machine.TownSubject {
		if !binding.Spec().BuiltIn { // the game may fail the command
			out.NextTown.State = current.State
		}
		if err := hs.stepper.CheckRoom(ctx, current, &out); err != nil {
			return DryRun{}, err
		}
	}
	out.Answer.RunID, out.Answer.First = "", prior
	return DryRun{Answer: *out.Answer, Binding: binding}, nil
}
