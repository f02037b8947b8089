package fsck

import (
	"strconv"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// checkHandoff checks the record of an accepted handoff.
func (l *LogCheck) checkHandoff(v *Verdict, rec *commitlog.Record) {
	if _, result := l.checkJudged(v, rec); result != nil && rec.Run != nil {
		v.accepts = &acceptance{result.IdempotencyKey, rec.RetryOf}
		v.want("an accepted handoff has the status of a refused one",
			"true", strconv.FormatBool(result.Status.Accepted()))
	}
}

// checkJudged checks that the run of a record ends with the record's result.
func (l *LogCheck) checkJudged(
	v *Verdict, rec *commitlog.Record,
) (*runReplay, *handoff.Result) {
	replay, result := l.replay(v, rec), parseResult(v, rec)
	if replay != nil {
		delete(l.Runs, rec.Run.RunID)
		if result != nil {
			replay.checkStart(v, result)
			replay.checkRetry(v, rec.RetryOf)
		}
	}
	return replay, result
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

// checkRefused checks the message of a refused run.
func (l *LogCheck) checkRefused(v *Verdict, rec *commitlog.Record) {
	l.counts.Refused++
	_, result := l.checkJudged(v, rec)
	if result == nil || rec.Run == nil {
		return
	}
	v.want("a refused handoff has the status of an accepted one",
		"false", strconv.FormatBool(result.Status.Accepted()))
	subject := wire.RefusedSubject(l.world, wire.TownToken(rec.TownID))
	prior, exists := l.towns[wire.LogSubject(l.world, wire.TownToken(rec.TownID))]
	exists = exists && prior.town.Removed == nil
	duplicate := result.Status == handoff.Duplicate
	// A duplicate is stored without a guard, so its town may have been made meanwhile.
	unknown := wire.RefusedSubject(l.world, wire.UnknownTownToken)
	if (!exists || duplicate) && v.message.Subject() == unknown {
		subject = unknown
	}
	v.want("the refused run stands on the subject of another town", subject, v.message.Subject())
	switch {
	case duplicate || !exists && result.ReasonCode == handoff.ReasonUnknownTown:
		v.step(rec, machine.Town{})
	case prior.known:
		v.before = prior.town.Seq
		v.step(rec, prior.town)
	}
}
