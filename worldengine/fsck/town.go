package fsck

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
)

// townState is a town by its last message read. If that could not be read, it is not known.
type townState struct {
	first uint64 // the sequence of the first message read of it
	read  uint64 // how many were read
	last  uint64 // the sequence of the last one
	// good is the sequence of the last record that an engine can load, 0 for none, and goodHash its
	// state's.
	good      uint64
	goodHash  string
	named     bool // it was counted as a town
	known     bool
	seq       uint64
	epoch     int64
	hash      string
	apply     apply.Binding
	paused    *commitlog.PausedBy
	pending   *apply.Pending
	policy    *approval.Policy
	approvals approval.List // see carriedOf
}

// next returns the town after one more message on its subject that is no record of it.
func (t *townState) next(seq uint64) townState {
	return townState{
		first: cmp.Or(t.first, seq), read: t.read + 1, last: seq,
		good: t.good, goodHash: t.goodHash, named: t.named,
	}
}

// checkCarried checks the members that a record of a town has from the one before it, whatever its
// kind.
func (v *Verdict) checkCarried(rec *commitlog.Record, prior, now *townState) {
	kind := rec.Kind
	v.follows("the commit was not guarded by the town's message before it",
		strconv.FormatUint(prior.seq, 10),
		v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
	if now.epoch < prior.epoch {
		v.follows("the town's day was lowered", Text(prior.epoch)+" or later", Text(now.epoch))
	}
	unchanged := kind == commitlog.KindPending || kind == commitlog.KindControl ||
		kind == commitlog.KindCancelled ||
		kind == commitlog.KindAsked || kind == commitlog.KindDecided
	if unchanged {
		v.follows("a record that cannot change the state changed it", prior.state(), now.state())
	}
	if kind != commitlog.KindPut {
		v.follows("a record that is no put changed who applies the town's commands",
			string(prior.apply), string(now.apply))
	}
	v.checkCarriedApprovals(rec, prior, now)
	if kind != commitlog.KindControl {
		v.follows("a record that is no signal paused or resumed the town",
			jsonText(prior.paused), jsonText(now.paused))
	}
	if kind == commitlog.KindControl || kind == commitlog.KindDecided {
		want, got := excerpts([]byte(jsonText(prior.pending)), []byte(jsonText(now.pending)))
		v.follows("a signal changed what is pending", want, got)
	}
	if kind == commitlog.KindPut && prior.pending != nil {
		v.follows("the town was put while a command was being applied to it",
			"", "run "+prior.pending.Run.RunID)
	}
}

// checkNotPending checks a record after which nothing can be pending.
func (v *Verdict) checkNotPending(rec *commitlog.Record) {
	if rec.Pending != nil {
		v.want("a record that ends an application has a pending handoff",
			"", "run "+rec.Pending.Run.RunID)
	}
}

// checkFree checks that a handoff could be judged on the town as it was.
func (t *townState) checkFree(v *Verdict) {
	if t.pending != nil {
		v.follows("a handoff was judged while another was being applied to its town",
			"", "run "+t.pending.Run.RunID)
	}
	if t.paused != nil {
		v.follows("a handoff was judged while its town was paused", "", "signal "+t.paused.SignalID)
	}
}

func (t *townState) state() string { return stateText(&t.hash, &t.epoch) }

// jsonText renders a member of a record, "null" if the record lacks it.
func jsonText(v any) string {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return string(data)
}
