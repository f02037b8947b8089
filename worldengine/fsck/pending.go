package fsck

import (
	"slices"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/town"
)

// checkPending checks a record of a handoff that is being applied: its first commit, with
// events, or without them another attempt, or more about the requests of this one.
func (l *LogCheck) checkPending(
	v *Verdict, rec *commitlog.Record, state *town.State, prior *townState,
) {
	p := rec.Pending
	if p == nil {
		l.counts.Pending++
		v.want("the record has no pending handoff", "a handoff", "")
		return
	}
	v.checkAttempt(p)
	if p.Attempt > 1 || rec.Run == nil {
		if before := prior.town.Pending; before == nil || before.Attempt != p.Attempt {
			l.counts.Attempts++
		}
		if rec.Run != nil {
			v.want("another attempt has events, which stand on the subject of its run",
				"", "run "+rec.Run.RunID)
		}
		if prior.known {
			v.checkCarried(rec, &prior.town)
			v.attemptFollows(prior.town.Pending, p)
		} else {
			v.checkApplication(rec, state)
			l.adopt(rec)
		}
		return
	}
	l.counts.Pending++
	v.checkApplication(rec, state)
	if prior.known {
		v.step(rec, prior.town)
	}
	if replay := l.replay(v, rec); replay != nil {
		v.want("the pending handoff is of another run than its events",
			identityText(&rec.Run.Identity), identityText(&p.Run))
		last := rec.Run.FirstSeq + int64(len(rec.Run.Events)) - 1
		v.want("the record does not count the events of its run", Text(last), Text(p.Emitted))
		replay.checkRetry(v, p.RetryOf)
		v.want("the run is not where a command begins to be applied",
			replayUntilApplied().text(replay), replay.text(replay))
	}
}

// checkAttempt checks the members of the attempt that a record begins.
func (v *Verdict) checkAttempt(p *apply.Pending) {
	if p.Attempt < 1 {
		v.want("an attempt is not counted from 1", "1 or more", Text(p.Attempt))
	}
	if p.Deadline.Before(p.NotBefore) {
		v.want("an attempt ends before it begins",
			"after "+runevents.Timestamp(p.NotBefore), runevents.Timestamp(p.Deadline))
	}
	if first := p.Attempt <= 1; first != (p.Last == nil) {
		v.want("an attempt does not record the outcome of the one before it",
			"attempt "+Text(p.Attempt),
			"reached "+strconv.FormatBool(p.Reached)+", last "+jsonText(p.Last))
	}
}

// checkApplication checks the handoff that is pending, and the state that is expected of it.
func (v *Verdict) checkApplication(rec *commitlog.Record, state *town.State) {
	p := rec.Pending
	app, err := p.Read()
	if err != nil {
		v.want("the pending handoff, or the state expected of it, is not valid", "", err.Error())
		return
	}
	made := &app.Handoff.Requirements
	v.want("the pending handoff is one for another town", rec.TownID, app.Handoff.Proposal.TownID)
	v.want("the pending handoff was not made from the town's state",
		stateText(&state.Hash, new(state.Epoch())),
		stateText(&made.ExpectedSnapshotHash, &made.ExpectedDecisionEpoch))
	v.want("the run is of another plan than the pending handoff",
		app.Handoff.ProposalID, p.Run.PlanID)
	v.want("the expected state is not in its canonical form",
		string(app.Expected.Canonical), string(p.Expected))
	v.want("the expected state is that of another town", rec.TownID, app.Expected.Snapshot.TownID)
	v.want("the expected state is not one day later",
		Text(state.Epoch()+1), Text(app.Expected.Epoch()))
	if err := p.Via.Validate(); err != nil || p.Via == apply.Local {
		v.want("the pending handoff names no plugin or console that applies it",
			"plugin or rcon", string(p.Via))
	}
	if len(idsOf(p, p.EventIDs)) == 0 {
		v.want("the record has not an id for each of its next events", "eventIds",
			jsonText(p.EventIDs))
	}
}

// idsOf returns the ids that drawn has for the events that may follow the commit of p, none if it
// lacks one of them.
func idsOf(p *apply.Pending, drawn []runevents.DrawnID) []runevents.DrawnID {
	none := func() string { return "" }
	ids, err := runevents.DrawIDs(p.Run, none, drawn, lifecycle.ToCome(p.Attempt)...)
	if err != nil {
		return nil
	}
	return ids
}

// attemptFollows checks that an attempt is the next one of the handoff that was pending.
func (v *Verdict) attemptFollows(prior, now *apply.Pending) {
	if prior == nil {
		v.follows("an attempt after the first follows no attempt",
			"attempt 1", "attempt "+Text(now.Attempt))
		return
	}
	same := *now // but for what an attempt has of its own
	same.Reached = prior.Reached
	if now.Attempt != prior.Attempt {
		v.follows("the attempt is not the next one", Text(prior.Attempt+1), Text(now.Attempt))
		same.Attempt, same.NotBefore, same.Deadline = prior.Attempt, prior.NotBefore, prior.Deadline
		same.Last, same.EventIDs = prior.Last, prior.EventIDs
	}
	want, got := excerpts([]byte(jsonText(prior)), []byte(jsonText(&same)))
	v.follows("another attempt changed what is pending", want, got)
	if !slices.Equal(idsOf(prior, prior.EventIDs),
		idsOf(prior, append(slices.Clone(now.EventIDs), prior.EventIDs...))) {
		v.follows("another attempt gives an event another id", jsonText(prior.EventIDs),
			jsonText(now.EventIDs))
	}
	if prior.Reached && !now.Reached {
		v.follows("another attempt does not keep that a request may have reached the game",
			"true", "false")
	}
}

// isConclusion reports whether a run goes on behind the first commit of its handoff. One that
// begins, or goes on after a pause, has a first event of that type. One that a cancellation had
// closed in a pause is resumed first, and then goes on with its command.
func isConclusion(run *runevents.Run) bool {
	if run == nil || len(run.Events) == 0 {
		return run != nil
	}
	switch run.Events[0].EventType {
	case runevents.RunQueued, runevents.RunApproved, runevents.RunStarted:
		return false
	case runevents.RunResumed:
		return len(run.Events) > 1 && run.Events[1].StepID == lifecycle.StepApply
	}
	return true
}

// checkConclusion checks that a record concludes the pending handoff.
func (v *Verdict) checkConclusion(
	p *apply.Pending, rec *commitlog.Record, r *handoff.Result, state *town.State, attempt int64,
) {
	v.follows("the concluded run is not that of the pending handoff",
		identityText(&p.Run), identityText(&rec.Run.Identity))
	v.follows("the result is of another retry than the pending handoff",
		jsonText(p.RetryOf), jsonText(rec.RetryOf))
	if attempt > 0 {
		v.follows("the attempt that was concluded is not the pending one",
			Text(p.Attempt), Text(attempt))
	}
	app, err := p.Read()
	if err != nil {
		return // found where it began to be pending
	}
	right := handoff.NewResult(app.Handoff, handoff.Outcome{
		Status: r.Status, ReasonCode: r.ReasonCode,
		Evaluation: r.Evaluation, WorldState: r.WorldState,
	})
	want, got := excerpts([]byte(jsonText(right)), []byte(jsonText(r)))
	v.follows("the result is not that of the pending handoff", want, got)
	if r.Executed && state.Epoch() < app.Expected.Epoch() {
		v.follows("the town's day is before the expected one",
			Text(app.Expected.Epoch())+" or later", Text(state.Epoch()))
	}
}

func identityText(i *runevents.Identity) string {
	return strings.Join([]string{i.RunID, i.PlanID, i.PlanVersion, i.TenantID, i.ProjectID,
		i.EnvironmentID}, " ")
}
