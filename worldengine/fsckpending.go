package worldengine

import (
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/town"
)

// pending checks a record that says that a handoff is being applied: its first commit, with events, or
// another attempt, without.
func (l *fsckLog) pending(v *fsckVerdict, rec *record, state *town.State, prior *fsckTown) {
	p := rec.Pending
	if p == nil {
		l.counts.Pending++
		v.want("the record has no pending handoff", "a handoff", "")
		return
	}
	v.checkAttempt(p)
	if p.Attempt > 1 {
		l.counts.Attempts++
		if rec.Run != nil {
			v.want("another attempt has events, which stand on the subject of its run", "", "run "+rec.Run.RunID)
		}
		if prior.known {
			v.attemptFollows(prior.pending, p)
		} else {
			v.checkApplication(rec, state)
			l.adopt(rec)
		}
		return
	}
	l.counts.Pending++
	v.checkApplication(rec, state)
	if prior.known {
		prior.free(v)
	}
	if story := l.tell(v, rec); story != nil {
		v.want("the pending handoff is of another run than its events", identityText(&rec.Run.Identity), identityText(&p.Run))
		last := rec.Run.FirstSeq + int64(len(rec.Run.Events)) - 1
		v.want("the record does not say how many events its run has", text(last), text(p.Emitted))
		v.want("the run is not where a command begins to be applied", applyingStory().text(story), story.text(story))
	}
}

// checkAttempt checks what a record says of the attempt that it begins.
func (v *fsckVerdict) checkAttempt(p *pending) {
	if p.Attempt < 1 {
		v.want("an attempt is not counted from 1", "1 or more", text(p.Attempt))
	}
	if p.Deadline.Before(p.NotBefore) {
		v.want("an attempt ends before it begins", "after "+runevents.Timestamp(p.NotBefore), runevents.Timestamp(p.Deadline))
	}
	if first := p.Attempt <= 1; first != (p.Last == nil) || first && p.Reached {
		v.want("an attempt does not say what became of the one before it",
			"attempt "+text(p.Attempt), "reached "+strconv.FormatBool(p.Reached)+", last "+jsonText(p.Last))
	}
}

// checkApplication checks the handoff that is pending, and the state that is expected of it.
func (v *fsckVerdict) checkApplication(rec *record, state *town.State) {
	p := rec.Pending
	app, err := p.read()
	if err != nil {
		v.want("the pending handoff, or the state expected of it, is not valid", "", err.Error())
		return
	}
	made := &app.handoff.Requirements
	v.want("the pending handoff is one for another town", rec.TownID, app.handoff.Proposal.TownID)
	v.want("the pending handoff was not made from the town's state", stateText(&state.Hash, new(state.Epoch())),
		stateText(&made.ExpectedSnapshotHash, &made.ExpectedDecisionEpoch))
	v.want("the run is of another plan than the pending handoff", app.handoff.ProposalID, p.Run.PlanID)
	v.want("the expected state is not in its canonical form", string(app.expected.Canonical), string(p.Expected))
	v.want("the expected state is that of another town", rec.TownID, app.expected.Snapshot.TownID)
	v.want("the expected state is not one day later", text(state.Epoch()+1), text(app.expected.Epoch()))
	if err := p.Via.validate(); err != nil || p.Via == ApplyLocal {
		v.want("nobody outside the engine applies the pending handoff", "plugin or rcon", string(p.Via))
	}
	if p.IDSeed == "" {
		v.want("the ids of the events to come are not drawn", "idSeed", "")
	}
}

// attemptFollows checks that an attempt is the next one of what was pending before it.
func (v *fsckVerdict) attemptFollows(prior, now *pending) {
	if prior == nil {
		v.follows("another attempt follows none", "attempt 1", "attempt "+text(now.Attempt))
		return
	}
	v.follows("the attempt is not the next one", text(prior.Attempt+1), text(now.Attempt))
	same := *now // but for what an attempt has of its own
	same.Attempt, same.NotBefore, same.Deadline = prior.Attempt, prior.NotBefore, prior.Deadline
	same.Reached, same.Last = prior.Reached, prior.Last
	want, got := excerpts([]byte(jsonText(prior)), []byte(jsonText(&same)))
	v.follows("another attempt changed what is pending", want, got)
	if prior.Reached && !now.Reached {
		v.follows("another attempt forgets that a request may have reached somebody", "true", "false")
	}
}

// concludes says whether a run goes on where the first commit of its handoff ended. One that begins, or
// goes on after a pause, says so in its first event.
func concludes(run *runevents.Run) bool {
	if run == nil || len(run.Events) == 0 {
		return run != nil
	}
	switch run.Events[0].EventType {
	case runevents.RunQueued, runevents.RunStarted, runevents.RunResumed:
		return false
	}
	return true
}

// concluded checks that a record concludes what is pending.
func (v *fsckVerdict) concluded(p *pending, rec *record, r *handoff.Result, state *town.State, attempt int64) {
	v.follows("the concluded run is not that of the pending handoff", identityText(&p.Run), identityText(&rec.Run.Identity))
	if attempt > 0 {
		v.follows("the attempt that was concluded is not the pending one", text(p.Attempt), text(attempt))
	}
	app, err := p.read()
	if err != nil {
		return // found where it began to be pending
	}
	right := handoff.NewResult(app.handoff, handoff.Outcome{
		Status: r.Status, ReasonCode: r.ReasonCode, Evaluation: r.Evaluation, WorldState: r.WorldState,
	})
	want, got := excerpts([]byte(jsonText(right)), []byte(jsonText(r)))
	v.follows("the result is not that of the pending handoff", want, got)
	if r.Executed && state.Epoch() < app.expected.Epoch() {
		v.follows("the town's day is before the expected one", text(app.expected.Epoch())+" or later", text(state.Epoch()))
	}
}

func identityText(i *runevents.Identity) string {
	return strings.Join([]string{i.RunID, i.PlanID, i.PlanVersion, i.TenantID, i.ProjectID, i.EnvironmentID}, " ")
}
