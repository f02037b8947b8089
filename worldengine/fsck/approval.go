package fsck

import (
	"strconv"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/town"
)

// checkCarriedApprovals checks what a record of a town has of approvals from the one before it. Who
// asks and who decides is checked with their records.
func (v *Verdict) checkCarriedApprovals(kind commitlog.Kind, prior, now *townState) {
	if kind != commitlog.KindPut {
		v.follows("a record that is no put changed what takes a person's approval",
			jsonText(prior.policy), jsonText(now.policy))
	}
	if kind == commitlog.KindAsked || kind == commitlog.KindDecided {
		return
	}
	if !now.approvals.Follows(prior.approvals) {
		want, got := excerpts([]byte(jsonText(prior.approvals)), []byte(jsonText(now.approvals)))
		v.follows("a record that is no decision changed what waits for approval", want, got)
	}
}

// checkAsked checks the record of a handoff that waits for a person's approval from then on.
func (l *LogCheck) checkAsked(v *Verdict, rec *commitlog.Record, prior *townState) {
	l.counts.Refused++
	replay, result := l.replay(v, rec), parseResult(v, rec)
	if replay != nil {
		delete(l.Runs, rec.Run.RunID)
	}
	if result == nil {
		return
	}
	if replay != nil {
		replay.checkEnd(v, rec, result)
	}
	v.want("a handoff that waits for approval has the reason of another one",
		string(handoff.ReasonApprovalRequired), string(result.ReasonCode))
	stale := &result.Evaluation.StaleCheck
	if prior.known {
		prior.checkFree(v)
		v.follows("the handoff was not judged on the town's state before it",
			prior.state(), stateText(stale.ActualSnapshotHash, stale.ActualDecisionEpoch))
	}
	last := approval.Asked{}
	if n := len(rec.Approvals); n > 0 {
		last = rec.Approvals[n-1]
		if prior.known && !rec.Approvals[:n-1].Follows(prior.approvals) {
			v.follows("a handoff that waits for approval changed others that do", "",
				last.HandoffID)
		}
	}
	v.want("the handoff that waits for approval is not the last of those that do",
		result.HandoffID, last.HandoffID)
	v.want("what waits for approval is another handoff than the record's",
		string(rec.Handoff), string(last.Handoff))
}

// checkDecided checks the signal that approved or denied a handoff. Its state is checked as that of
// any record.
func (l *LogCheck) checkDecided(
	v *Verdict, rec *commitlog.Record, state *town.State, prior *townState,
) {
	l.counts.Signals++
	if !prior.known && rec.Pending != nil {
		v.checkAttempt(rec.Pending)
		v.checkApplication(rec, state)
		l.adopt(rec)
	}
	if !v.checkSignalRun(rec, acceptedEvents) {
		return
	}
	decided := 0
	for i := range rec.Approvals {
		a := &rec.Approvals[i]
		d := a.Decision
		if d == nil || d.SignalID != rec.Run.RunID {
			if prior.known && !rec.Approvals[i:i+1].Follows(prior.approvals) {
				v.follows("a decision changed another handoff that waits for approval",
					"", a.HandoffID)
			}
			continue
		}
		decided++
		kind := lifecycle.SignalDeny
		if d.Approved {
			kind = lifecycle.SignalApprove
		}
		v.wantPayload(rec.Run, 0, string(kind), "signal")
		v.wantPayload(rec.Run, 0, a.HandoffID, "handoffId")
		v.wantPayload(rec.Run, 0, d.ActorID, "actorId")
		v.wantPayload(rec.Run, 0, d.Reason, "reason")
	}
	if decided != 1 {
		v.want("a signal does not decide about one handoff", "1", strconv.Itoa(decided))
	}
}

// checkApproved checks that a handoff which was accepted for execution had the approval that its
// type takes by the policy of its town, and that its run names it. The policy of the world does
// not stand in the log, so where a town has none of its own nothing is checked.
func (v *Verdict) checkApproved(prior *townState, encoded []byte, run *runevents.Run) {
	h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
	if err != nil || !prior.known || prior.policy == nil ||
		!prior.policy.Requires(h.Proposal.Type) {
		return
	}
	a := prior.entryOf(h, encoded)
	if a == nil || a.Handoff == nil || a.Decision == nil || !a.Decision.Approved {
		v.follows("a handoff was accepted without the approval that its type takes",
			"an approval of "+h.HandoffID, "")
		return
	}
	for i := range run.Events {
		payload := run.Events[i].Payload
		switch run.Events[i].EventType {
		case runevents.RunApproved:
			v.follows("the run names another approval than the handoff had",
				a.Decision.SignalID, payloadText(payload, "signalId"))
			return
		case runevents.RunResumed:
			v.follows("the run names another approval than the handoff had",
				a.Decision.SignalID, payloadText(payload, "approval", "signalId"))
			return
		}
	}
	v.follows("the run does not name the approval that the handoff had", a.Decision.SignalID, "")
}

// checkDenied checks that a handoff which was refused as denied is one that a person denied.
func (v *Verdict) checkDenied(prior *townState, rec *commitlog.Record, r *handoff.Result) {
	if r.ReasonCode != handoff.ReasonApprovalDenied || !prior.known || rec.Handoff == nil {
		return
	}
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		return
	}
	a := prior.entryOf(h, rec.Handoff)
	if a == nil || a.Decision == nil || a.Decision.Approved {
		v.follows("a handoff was refused as denied, and the log has no denial of it",
			"a denial of "+h.HandoffID, "")
	}
}

// entryOf returns the last entry of a handoff, made from the state of the town; nil for none.
func (t *townState) entryOf(h *handoff.Handoff, encoded []byte) (found *approval.Asked) {
	hash := approval.Hash(encoded)
	for i := range t.approvals {
		a := &t.approvals[i]
		known := a.HandoffHash
		if a.Handoff != nil {
			known = approval.Hash(a.Handoff)
		}
		if a.HandoffID == h.HandoffID && a.SnapshotHash == t.hash &&
			(known == "" || known == hash) {
			found = a
		}
	}
	return found
}
