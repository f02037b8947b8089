package approvals

import (
	"context"
	"fmt"
	"time"

	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// timeout bounds a look at the towns of a world.
const timeout = 10 * time.Second

// known is what a town's record has of approvals. Its state is not read.
type known struct {
	hash      string // of the state
	policy    *approval.Policy
	approvals approval.List
}

// load reads what a town's last record has of approvals: nothing for a town that does not exist.
func (r *Reader) load(ctx context.Context, townID string) (*known, error) {
	msg, err := r.Log.LastOf(ctx, townID)
	if msg == nil || err != nil {
		return new(known), err
	}
	rec, err := commitlog.ReadRecord(msg.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: town %q, log sequence %d: %w", commitlog.ErrTownDamaged,
			townID, msg.Sequence, err)
	}
	return &known{msg.Header.Get(wire.HashHeader), rec.Policy, rec.Approvals}, nil
}

// lately is for how long a decision about what has expired gets that answer where its request names
// no town.
const lately = 24 * time.Hour

// needed reports whether the list has an entry that has not expired, or did so less than a day ago.
func (k *known) needed(now time.Time) bool {
	for i := range k.approvals {
		if now.Before(k.approvals[i].Expires.Add(lately)) {
			return true
		}
	}
	return false
}

// look reports whether a handoff waits in the town, when the town asked about it, and the code of
// the refusal of a decision about it: "" where it would be taken or is too late.
func (k *known) look(
	q approval.Question, now time.Time,
) (waits bool, at time.Time, code wire.Code) {
	i, refused := k.approvals.Select(q, k.hash, now)
	if refused == nil {
		a := &k.approvals[i]
		return a.Status(k.hash, now).IsOpen(), a.At, ""
	}
	for i := range k.approvals {
		if a := &k.approvals[i]; a.HandoffID == q.HandoffID && a.At.After(at) {
			at = a.At
		}
	}
	return refused.Code == wire.CodeApprovalAmbiguous, at, refused.Code
}

// candidate is a town that asked about a handoff, and when.
type candidate struct {
	town string
	at   time.Time
}

// later returns the candidate that asked later.
func (c candidate) later(other candidate) candidate {
	if c.town == "" || other.at.After(c.at) {
		return other
	}
	return c
}
