package fsck

import (
	"strconv"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/town"
)

// checkAsked checks the record of a handoff that waits for a person's approval from then on.
func (l *LogCheck) checkAsked(v *Verdict, rec *commitlog.Record, prior, now *townState) {
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
	}
	v.want("the handoff that waits for approval is not the last of those that do",
		result.HandoffID, last.HandoffID)
	v.want("what waits for approval is another handoff than the record's",
		string(rec.Handoff), string(last.Handoff))
	v.checkAskedEntry(rec, &last, prior, now)
}

// checkAskedEntry checks the entry of a handoff that waits from its record on, and that the others
// are as they were.
func (v *Verdict) checkAskedEntry(
	rec *commitlog.Record, last *approval.Asked, prior, now *townState,
) {
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		return // found with its result
	}
	v.checkTime("a handoff waits since another time than its run", rec, last.At)
	if rec.Run != nil && !last.Trace.IsZero() {
		v.want("what waits for approval has another trace than its run",
			traceText(rec.Run.Trace), traceText(last.Trace))
	}
	if policy := prior.policyOf(rec); policy != nil && !policy.Requires(h.Proposal.Type) {
		v.follows("a handoff waits for an approval that its type does not take",
			policy.String(), string(h.Proposal.Type))
	}
	if !prior.known {
		return
	}
	gate := prior.approvals.Judge(approval.Policy{}, h, rec.Handoff, last.At)
	if !gate.Ask {
		v.follows("a handoff waits for an approval again, or although too many do",
			"", last.HandoffID+" "+string(gate.Reason))
	}
	right := prior.approvals.Ask(h, rec.Handoff, trace.Context{}, last.At,
		last.Expires.Sub(last.At))
	v.differ("a handoff that waits for approval changed others that do",
		carriedOf(right.On(now.hash)), now.approvals)
}

// policyOf returns which types of proposals took an approval when a handoff was judged; nil if the
// record does not have it, or if none did.
func (t *townState) policyOf(rec *commitlog.Record) *approval.Policy {
	if t.known && t.policy != nil {
		return t.policy
	}
	if rec.Policy != nil {
		return rec.Policy // a handoff does not change it
	}
	return rec.WorldPolicy
}

// traceText renders a trace.
func traceText(of trace.Context) string { return of.Parent + " " + of.State }

// checkDecided checks the signal that approved or denied a handoff. Its state is checked as in any
// record.
func (l *LogCheck) checkDecided(
	v *Verdict, rec *commitlog.Record, state *town.State, prior, now *townState,
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
	var about *approval.Asked
	decided := 0
	for i := range rec.Approvals {
		if a := &rec.Approvals[i]; a.Decision != nil && a.Decision.SignalID == rec.Run.RunID {
			about = a
			decided++
		}
	}
	if decided != 1 {
		v.want("a signal does not decide about one handoff", "1", strconv.Itoa(decided))
		return
	}
	d := about.Decision
	kind := lifecycle.SignalDeny
	if d.Approved {
		kind = lifecycle.SignalApprove
	}
	v.wantPayload(rec.Run, 0, string(kind), "signal")
	v.wantPayload(rec.Run, 0, about.HandoffID, "handoffId")
	v.wantPayload(rec.Run, 0, d.ActorID, "actorId")
	v.wantPayload(rec.Run, 0, d.Reason, "reason")
	v.wantPayload(rec.Run, 0, about.HandoffHash, "handoffHash")
	v.wantPayload(rec.Run, 1, about.HandoffHash, "handoffHash")
	v.checkTime("a decision was taken at another time than its run", rec, d.At)
	if prior.known {
		v.checkDecision(about, prior, now)
	}
}

// checkDecision takes a decision again, on what waited before it, and compares.
func (v *Verdict) checkDecision(about *approval.Asked, prior, now *townState) {
	d := *about.Decision
	q := approval.Question{HandoffID: about.HandoffID, HandoffHash: about.HandoffHash}
	right, _, refused := prior.approvals.Decide(q, prior.hash, d, about.Expires.Sub(d.At))
	if refused != nil {
		v.follows("a decision was taken that had to be refused", string(refused.Code),
			d.SignalID+" about "+about.HandoffID)
		return
	}
	v.differ("a decision changed another handoff that waits for approval",
		carriedOf(right.On(now.hash)), now.approvals)
}

// checkApproved checks that a handoff which was accepted for execution had the approval that its
// type takes by the policy of its town, or of the world, and that its run names it.
func (v *Verdict) checkApproved(prior *townState, encoded []byte, rec *commitlog.Record) {
	h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
	policy := prior.policyOf(rec)
	if err != nil || !prior.known || policy == nil {
		return
	}
	named, used := approvalIn(rec.Run)
	if !policy.Requires(h.Proposal.Type) {
		v.follows("the run names an approval that its type does not take", "", named)
		return
	}
	a := prior.approvals.Entry(h.HandoffID, approval.Hash(encoded))
	if a == nil || a.SnapshotHash != prior.hash || a.Handoff == nil || a.Decision == nil ||
		!a.Decision.Approved {
		v.follows("a handoff was accepted without the approval that its type takes",
			"an approval of "+h.HandoffID, "")
		return
	}
	if a.Status(prior.hash, used) == approval.Expired {
		v.follows("a handoff was accepted with an approval that had expired",
			"before "+runevents.Timestamp(a.Expires), runevents.Timestamp(used))
	}
	if named == "" {
		v.follows("the run does not name the approval that the handoff had",
			a.Decision.SignalID, "")
		return
	}
	v.follows("the run names another approval than the handoff had", a.Decision.SignalID, named)
}

// approvalIn returns the signal of the approval that a run names, and when the engine found that
// approval: "" and the zero time if the run names none.
func approvalIn(run *runevents.Run) (signalID string, used time.Time) {
	for i := range run.Events {
		event, path := &run.Events[i], []string{"signalId"}
		switch event.EventType {
		case runevents.RunResumed:
			path = []string{"approval", "signalId"}
		case runevents.RunApproved:
		default:
			continue
		}
		used, _ = time.Parse(time.RFC3339Nano, event.EmittedAt)
		return payloadText(event.Payload, path...), used
	}
	return "", time.Time{}
}

// checkUnapproved checks that a handoff which was refused as denied is one that a person denied,
// and one that was refused because it waits for its decision does so.
func (v *Verdict) checkUnapproved(prior *townState, rec *commitlog.Record, r *handoff.Result) {
	var right approval.Status
	var what string
	switch r.ReasonCode {
	case handoff.ReasonApprovalDenied:
		right = approval.Denied
		what = "a handoff was refused as denied, and the log has no denial of it"
	case handoff.ReasonApprovalRequired:
		right = approval.Waiting
		what = "a handoff was refused until its approval, and it did not wait"
	default:
		return
	}
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		return
	}
	found := approval.Status("")
	if a := prior.approvals.Entry(h.HandoffID, approval.Hash(rec.Handoff)); a != nil {
		// No event has the time at which the engine found the entry: some time before the last one.
		found = a.Status(prior.hash, endOf(rec).Add(-engineSlack))
	}
	v.follows(what, string(right), string(found))
}
