package fsck

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
)

// open stands in place of the handoff of an entry that has one.
const open = "true"

// carriedOf returns what fsck keeps of a list, which may be kept in part already: the hash of each
// handoff in place of its bytes, and of each long text, so that a check of a whole log holds no
// more than some hundred bytes of an entry.
func carriedOf(list approval.List) approval.List {
	list = slices.Clone(list)
	for i := range list {
		a := &list[i]
		if a.Handoff != nil && string(a.Handoff) != open {
			a.HandoffHash, a.Handoff = approval.Hash(a.Handoff), jsontext.Value(open)
		}
		a.Trace, a.RunID = trace.Context{}, "" // the latter is checked where it is set
		if a.Decision != nil {
			d := *a.Decision
			d.Reason, d.ActorID = hashed(d.Reason), hashed(d.ActorID)
			a.Decision = &d
		}
	}
	return list
}

// checkApprovalHashes checks that entries that wait have the hashes of their handoffs.
func (v *Verdict) checkApprovalHashes(rec *commitlog.Record) {
	for i := range rec.Approvals {
		if a := &rec.Approvals[i]; a.Handoff != nil {
			v.want("the hash of what waits for approval is not that of its handoff",
				approval.Hash(a.Handoff), a.HandoffHash)
		}
	}
}

// hashed returns a text, or its hash in place of one that is longer.
func hashed(text string) string {
	hash := "SHA-256 " + approval.Hash([]byte(text))
	if len(text) <= len(hash) {
		return text
	}
	return hash
}

// checkCarriedApprovals checks the approvals of a town's record against those that follow from the
// one before. Those that a record adds or decides are checked with its kind.
func (v *Verdict) checkCarriedApprovals(rec *commitlog.Record, prior, now *townState) {
	if rec.Kind != commitlog.KindPut {
		v.follows("a record that is no put changed what takes a person's approval",
			jsonText(prior.policy), jsonText(now.policy))
	}
	if rec.Kind == commitlog.KindAsked || rec.Kind == commitlog.KindDecided {
		return
	}
	right := prior.approvals
	if encoded, accepts := acceptedBy(rec); accepts {
		h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
		if err != nil {
			return // found with its result
		}
		v.checkUser(rec, prior, h.HandoffID, approval.Hash(encoded))
		right = right.Close(h, encoded, "")
	}
	v.differ("a record that is no decision changed what waits for approval", right.On(now.hash),
		now.approvals)
}

// checkUser checks the run that the entry of an accepted handoff names, if the record closes that
// entry: one that was closed before keeps its run.
func (v *Verdict) checkUser(
	rec *commitlog.Record, prior *townState, handoffID, handoffHash string,
) {
	before := prior.approvals.Entry(handoffID, handoffHash)
	if before == nil || before.Handoff == nil {
		return
	}
	a := approval.List(rec.Approvals).Entry(handoffID, handoffHash)
	if a != nil && rec.Run != nil {
		v.want("what was accepted for execution names another run than the record's",
			rec.Run.RunID, a.RunID)
	}
}

// acceptedBy returns the handoff that a record accepts for execution, as it was stored.
func acceptedBy(rec *commitlog.Record) (encoded []byte, accepts bool) {
	switch p := rec.Pending; {
	case rec.Kind == commitlog.KindHandoff:
		return rec.Handoff, !isConclusion(rec.Run)
	case rec.Kind == commitlog.KindPending && p != nil && p.Attempt <= 1 && rec.Run != nil:
		return p.Handoff, true
	}
	return nil, false
}

// differ reports a list that is not the one which follows from the record before.
func (v *Verdict) differ(what string, right, found approval.List) {
	want, got := excerpts([]byte(jsonText(right)), []byte(jsonText(found)))
	v.follows(what, want, got)
}

// engineSlack bounds the time from an engine's look at its clock for a decision to the one for the
// events of the same commit, which are behind it.
const engineSlack = time.Minute

// endOf returns when the last event of a record was emitted, the zero time if it has no such time.
func endOf(rec *commitlog.Record) time.Time {
	if rec.Run == nil || len(rec.Run.Events) == 0 {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339Nano, rec.Run.Events[len(rec.Run.Events)-1].EmittedAt)
	return at
}

// checkTime checks a time that an engine stored with events of the same commit.
func (v *Verdict) checkTime(what string, rec *commitlog.Record, at time.Time) {
	end := endOf(rec)
	if apart := end.Sub(at).Abs(); !end.IsZero() && apart > engineSlack {
		v.want(what, end.Format(time.RFC3339Nano), at.Format(time.RFC3339Nano))
	}
}
