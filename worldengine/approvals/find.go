package approvals

import (
	"context"
	"errors"
	"fmt"

	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// Find returns the town that a decision is about whose request names none, "" where no town asked
// about the handoff: the one in which it waits among those that may accepts, or where it waits in
// none the one that was the last to ask about it, among those first. Where no town asked about the
// handoff with the hash, it is the last one that asked about another one with the id. It returns a
// *signals.RefusedError, which is not recorded, where the handoff waits in several of them, and
// ErrTownDamaged where a town that may have asked cannot be read.
//
// Find looks at the towns that of accepts alone: who may not read the others does not learn what
// waits there.
func (r *Reader) Find(
	ctx context.Context, q approval.Question, of, may func(townID string) bool,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var open []string
	var closed, foreign, differs candidate
	var damaged error
	err := r.visit(ctx, func(townID string, known *known, err error) error {
		if !of(townID) {
			return nil
		}
		if err != nil {
			if may(townID) {
				damaged = err
			}
			return nil
		}
		waits, at, found := known.look(q, r.Now())
		here := candidate{town: townID, at: at}
		switch {
		case found == wire.CodeUnknownApproval:
		case found == wire.CodeApprovalDiffers:
			differs = differs.later(here)
		case !may(townID):
			foreign = foreign.later(here)
		case waits:
			open = append(open, townID)
		default:
			closed = closed.later(here)
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case len(open) > 1:
		return "", &signals.RefusedError{Code: wire.CodeApprovalAmbiguous, Message: fmt.Sprintf(
			"handoffs with this handoffId wait in %d towns; say which by the townId, and the "+
				"handoffHash, that approval.list has", len(open))}
	case len(open) == 1:
		return open[0], nil
	}
	for _, c := range []candidate{closed, foreign} {
		if c.town != "" {
			return c.town, nil
		}
	}
	if damaged != nil {
		return "", damaged // it may have asked
	}
	return differs.town, nil
}

// visit visits the towns in which proposals may wait, or were asked for lately, in the order of
// their subjects: known, or the error that kept a town from being read. It removes entries of the
// index that are not needed any more.
func (r *Reader) visit(
	ctx context.Context, do func(townID string, known *known, err error) error,
) error {
	return r.Index.Asked(ctx, func(townID string, entry *commitlog.Message) error {
		town, err := r.load(ctx, townID)
		if errors.Is(err, commitlog.ErrTownDamaged) {
			r.Logger.Error("the proposals that wait in a town cannot be read", "town", townID,
				"error", err)
			return do(townID, nil, err)
		}
		if err != nil {
			return err
		}
		if !town.needed(r.Now()) && r.Now().Sub(entry.Stored) > commitlog.AskedAge {
			r.Index.Remove(ctx, entry.Seq)
		}
		return do(townID, town, nil)
	})
}
