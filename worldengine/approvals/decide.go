package approvals

import (
	"context"
	"time"

	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
)

// Decider takes people's decisions. Every member must be set.
type Decider struct {
	Log     *commitlog.Log
	Signals *signals.Recorder
	// Commit commits a record that leaves the state of its town as it is, behind a sequence.
	Commit func(ctx context.Context, rec *commitlog.Record, guard uint64,
		after commitlog.Entry) error
	Now func() time.Time
	// Timeout is how long a decision counts.
	Timeout time.Duration
}

// Decide takes a decision about a handoff that waits for approval in a town: s has the kind,
// SignalApprove or SignalDeny, the town, the handoff, the person and the reason. The decision is a
// commit of the town, so one of two is first; the other gets a *signals.RefusedError. The returned
// entry has the decision and, if that is an approval, the handoff.
func (d *Decider) Decide(
	ctx context.Context, s signals.Signal,
) (decided approval.Asked, err error) {
	s = s.WithDefaults()
	err = d.Log.Retry(ctx, func() error {
		current, err := d.Log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		q := approval.Question{HandoffID: s.HandoffID, HandoffHash: s.HandoffHash}
		now := d.Now().UTC()
		i, refused := current.Approvals.Select(q, current.State.Hash, now)
		if refused != nil {
			return d.Signals.Refuse(ctx, &s, refused.Code, refused.Message)
		}
		about := s // the log names the handoff, also where the person did not
		about.HandoffHash = current.Approvals[i].HandoffHash
		run, err := d.Signals.Accepted(&about)
		if err != nil {
			return err
		}
		decision := approval.Decision{
			Approved: s.Kind == lifecycle.SignalApprove, SignalID: run.RunID, ActorID: s.ActorID,
			Reason: s.Reason, At: now,
		}
		list, entry, refused := current.Approvals.Decide(q, current.State.Hash, decision,
			d.Timeout)
		if refused != nil {
			return d.Signals.Refuse(ctx, &s, refused.Code, refused.Message)
		}
		decided = entry
		if entry.Decision.SignalID != run.RunID {
			return nil // the same person decided so before
		}
		after := current
		after.Approvals = list
		rec := commitlog.Record{Kind: commitlog.KindDecided, TownID: s.TownID, Run: run}
		return d.Commit(ctx, &rec, current.Seq, after)
	})
	return decided, err
}
