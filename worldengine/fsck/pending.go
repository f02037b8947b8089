package fsck

import (
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
)

// checkPending checks a record of a handoff that is being applied: its first commit, with events,
// or without them another attempt, or news about the requests of this one.
func (l *LogCheck) checkPending(
	v *Verdict, rec *commitlog.Record, state *town.State, prior *townState,
) {
	p, before := rec.Pending, prior.town.Pending
	switch {
	case p == nil:
		l.counts.Pending++
		v.want("the record has no pending handoff", "a handoff", "")
		return
	case rec.Run != nil:
		l.counts.Pending++
	case before == nil || before.Attempt != p.Attempt:
		l.counts.Attempts++
	}
	if prior.known {
		v.step(rec, prior.town)
	}
	if rec.Run == nil {
		l.adoptUnknown(v, rec, state, prior)
		return
	}
	if replay := l.replay(v, rec); replay != nil {
		replay.checkRetry(v, p.RetryOf)
	}
}

// checkApplication checks a pending handoff whose first record the log does not keep: it can be
// applied, and was made from the town's state.
func (v *Verdict) checkApplication(rec *commitlog.Record, state *town.State) {
	app, err := rec.Pending.Read()
	if err != nil {
		v.want("the pending handoff, or the state expected of it, is not valid", "", err.Error())
		return
	}
	made := &app.Handoff.Requirements
	v.want("the pending handoff is one for another town", rec.TownID, app.Handoff.Proposal.TownID)
	v.want("the pending handoff was not made from the town's state",
		stateText(&state.Hash, new(state.Epoch())),
		stateText(&made.ExpectedSnapshotHash, &made.ExpectedDecisionEpoch))
	v.want("the expected state is that of another town", rec.TownID, app.Expected.Snapshot.TownID)
}

func identityText(i *runevents.Identity) string {
	return strings.Join([]string{i.RunID, i.PlanID, i.PlanVersion, i.TenantID, i.ProjectID,
		i.EnvironmentID}, " ")
}
