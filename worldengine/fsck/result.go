package fsck

import (
	"strconv"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// checkHandoff checks the record of an accepted handoff: one that was judged and applied at once,
// or the conclusion of one that was pending.
func (l *LogCheck) checkHandoff(
	v *Verdict, rec *commitlog.Record, state *town.State, prior *townState,
) {
	replay := l.replay(v, rec)
	result := parseResult(v, rec)
	if rec.Run == nil {
		return
	}
	delete(l.Runs, rec.Run.RunID)
	conclusion := isConclusion(rec.Run)
	if result != nil {
		v.accepts = &acceptance{result.IdempotencyKey, rec.RetryOf}
		checkAccepted(v, result, state, prior, conclusion)
		replay.checkEnd(v, rec, result)
	}
	switch {
	case !prior.known:
	case !conclusion:
		prior.checkFree(v)
		if rec.Handoff != nil {
			v.checkApproved(prior, rec.Handoff, rec)
		}
	case prior.pending == nil:
		v.follows("the run that ends was not pending", "", "run "+rec.Run.RunID)
	case result != nil:
		v.checkConclusion(prior.pending, rec, result, state, replay.attempt)
	}
}

// parseResult returns the verified result of a record, or nil.
func parseResult(v *Verdict, rec *commitlog.Record) *handoff.Result {
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		v.want("the result does not verify", "", err.Error())
		return nil
	}
	return result
}

// checkAccepted checks the result of an accepted handoff against its town.
func checkAccepted(
	v *Verdict, r *handoff.Result, state *town.State, prior *townState, conclusion bool,
) {
	e := &r.Evaluation
	after := handoff.WorldState{}
	if r.WorldState != nil {
		after = *r.WorldState
	}
	v.want("an accepted handoff has the status of a refused one",
		"true", strconv.FormatBool(r.Status.Accepted()))
	v.want("an accepted handoff has not passed every check", "true", strconv.FormatBool(
		e.DuplicateCheck.Evaluated && !e.DuplicateCheck.Duplicate && e.StaleCheck.Evaluated &&
			e.StaleCheck.Passed && e.Preconditions.Evaluated && e.Preconditions.Passed))
	v.want("the result does not name the state after it",
		stateText(&state.Hash, new(state.Epoch())), stateText(after.SnapshotHash,
			after.DecisionEpoch))
	judged := stateText(&r.SnapshotHash, &r.DecisionEpoch)
	v.want("the stale check does not name the state that the handoff was made from",
		judged, stateText(e.StaleCheck.ActualSnapshotHash, e.StaleCheck.ActualDecisionEpoch))
	switch {
	case r.Status == handoff.Failed:
		v.want("a failed handoff changed its town",
			judged, stateText(&state.Hash, new(state.Epoch())))
	case !conclusion:
		v.want("an executed handoff did not move its town on by one day",
			Text(r.DecisionEpoch+1), Text(state.Epoch()))
	case state.Epoch() <= r.DecisionEpoch: // a plugin may report a later day than the next
		v.want("an executed handoff did not move its town on",
			Text(r.DecisionEpoch+1)+" or later", Text(state.Epoch()))
	}
	if prior.known {
		v.follows("the handoff was not judged on the town's state before it",
			prior.state(), judged)
	}
}

// checkRefused checks the message of a refused run.
func (l *LogCheck) checkRefused(v *Verdict, rec *commitlog.Record) {
	l.counts.Refused++
	replay := l.replay(v, rec)
	if replay != nil {
		delete(l.Runs, rec.Run.RunID)
	}
	result := parseResult(v, rec)
	if result == nil {
		return
	}
	if replay != nil {
		replay.checkEnd(v, rec, result)
	}
	v.want("a refused handoff has the status of an accepted one",
		"false", strconv.FormatBool(result.Status.Accepted()))
	subject := wire.RefusedSubject(l.world, wire.TownToken(rec.TownID))
	prior, exists := l.towns[wire.LogSubject(l.world, wire.TownToken(rec.TownID))]
	// A duplicate is stored without a guard, so its town may have been made meanwhile.
	mayBeUnknown := !exists || result.Status == handoff.Duplicate
	unknown := wire.RefusedSubject(l.world, wire.UnknownTownToken)
	if mayBeUnknown && v.message.Subject() == unknown {
		subject = unknown
	}
	if result.ReasonCode == handoff.ReasonUnknownTown {
		v.want("a town that exists was refused as unknown", "false", strconv.FormatBool(exists))
	}
	v.want("the refused run stands on the subject of another town", subject, v.message.Subject())
	stale := &result.Evaluation.StaleCheck
	if stale.Evaluated && prior.known {
		v.before = prior.seq
		v.checkUnapproved(&prior, rec, result)
		prior.checkFree(v)
		v.follows("the handoff was not judged on the town's state before it",
			prior.state(), stateText(stale.ActualSnapshotHash, stale.ActualDecisionEpoch))
	}
}
