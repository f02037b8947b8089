package worldengine

import (
	"strconv"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/town"
)

// handoff checks the record of an accepted handoff: one that was judged and applied at once, or the
// conclusion of one that was pending.
func (l *fsckLog) handoff(v *fsckVerdict, rec *record, state *town.State, prior *fsckTown) {
	story := l.tell(v, rec)
	result := parseFsckResult(v, rec)
	if rec.Run == nil {
		return
	}
	delete(l.runs, rec.Run.RunID)
	concludes := concludes(rec.Run)
	if result != nil {
		accepted(v, result, state, prior, concludes)
		story.ends(v, rec, result)
	}
	switch {
	case !prior.known:
	case !concludes:
		prior.free(v)
	case prior.pending == nil:
		v.follows("the run that ends was not pending", "", "run "+rec.Run.RunID)
	case result != nil:
		v.concluded(prior.pending, rec, result, state, story.attempt)
	}
}

// parseFsckResult returns the verified result of a record, or nil.
func parseFsckResult(v *fsckVerdict, rec *record) *handoff.Result {
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		v.want("the result does not verify", "", err.Error())
		return nil
	}
	return result
}

// accepted checks what the result of an accepted handoff says about its town.
func accepted(v *fsckVerdict, r *handoff.Result, state *town.State, prior *fsckTown, concludes bool) {
	e := &r.Evaluation
	after := handoff.WorldState{}
	if r.WorldState != nil {
		after = *r.WorldState
	}
	v.want("an accepted handoff has the status of a refused one", "true", strconv.FormatBool(r.Status.Accepted()))
	v.want("an accepted handoff has not passed every check", "true", strconv.FormatBool(
		e.DuplicateCheck.Evaluated && !e.DuplicateCheck.Duplicate && e.StaleCheck.Evaluated &&
			e.StaleCheck.Passed && e.Preconditions.Evaluated && e.Preconditions.Passed))
	v.want("the result does not say the state after it",
		stateText(&state.Hash, new(state.Epoch())), stateText(after.SnapshotHash, after.DecisionEpoch))
	judged := stateText(&r.SnapshotHash, &r.DecisionEpoch)
	v.want("the stale check does not say the state that the handoff was made from",
		judged, stateText(e.StaleCheck.ActualSnapshotHash, e.StaleCheck.ActualDecisionEpoch))
	switch {
	case r.Status == handoff.Failed:
		v.want("a failed handoff changed its town", judged, stateText(&state.Hash, new(state.Epoch())))
	case !concludes:
		v.want("an executed handoff did not move its town on by one day",
			text(r.DecisionEpoch+1), text(state.Epoch()))
	case state.Epoch() <= r.DecisionEpoch: // a plugin may report a later day than the next
		v.want("an executed handoff did not move its town on", text(r.DecisionEpoch+1)+" or later", text(state.Epoch()))
	}
	if prior.known {
		v.follows("the handoff was not judged on the town's state before it",
			prior.state(), judged)
	}
}

// refused checks the message of a refused run.
func (l *fsckLog) refused(v *fsckVerdict, rec *record) {
	l.counts.Refused++
	story := l.tell(v, rec)
	if story != nil {
		delete(l.runs, rec.Run.RunID)
	}
	result := parseFsckResult(v, rec)
	if result == nil {
		return
	}
	if story != nil {
		story.ends(v, rec, result)
	}
	v.want("a refused handoff has the status of an accepted one", "false", strconv.FormatBool(result.Status.Accepted()))
	subject := refusedSubject(l.world, TownToken(rec.TownID))
	prior, exists := l.towns[logSubject(l.world, TownToken(rec.TownID))]
	// A duplicate is stored without a guard, so its town may have been made meanwhile.
	if unknown := refusedSubject(l.world, unknownTownToken); v.message.Subject() == unknown &&
		(!exists || result.Status == handoff.Duplicate) {
		subject = unknown
	}
	if result.ReasonCode == handoff.ReasonUnknownTown {
		v.want("a town that exists is called unknown", "false", strconv.FormatBool(exists))
	}
	v.want("the refused run stands on the subject of another town", subject, v.message.Subject())
	stale := &result.Evaluation.StaleCheck
	if stale.Evaluated && prior.known {
		v.before = prior.seq
		prior.free(v)
		v.follows("the handoff was not judged on the town's state before it",
			prior.state(), stateText(stale.ActualSnapshotHash, stale.ActualDecisionEpoch))
	}
}
