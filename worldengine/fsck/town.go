package fsck

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// townState is a town by its last message read. If that could not be read, it is not known.
type townState struct {
	first uint64 // the sequence of the first message read of it
	read  uint64 // how many were read
	last  uint64 // the sequence of the last one
	// good is the sequence of the last record that an engine can load, 0 for none, and goodHash its
	// state's.
	good     uint64
	goodHash string
	named    bool // it was counted as a town
	known    bool
	town     machine.Town // if it is known
}

// next returns the town after one more message on its subject that is no record of it.
func (t *townState) next(seq uint64) townState {
	return townState{
		first: cmp.Or(t.first, seq), read: t.read + 1, last: seq,
		good: t.good, goodHash: t.goodHash, named: t.named,
	}
}

// checkGuard checks that the commit of a record was guarded by the town's message before it.
func (v *Verdict) checkGuard(before uint64) {
	v.follows("the commit was not guarded by the town's message before it",
		strconv.FormatUint(before, 10),
		v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
}

// checkCarried checks the members that a record about the command which is being applied has from
// the one before it.
func (v *Verdict) checkCarried(rec *commitlog.Record, before *machine.Town) {
	carried := *before
	if rec.Kind == commitlog.KindHandoff {
		carried.Approvals = before.Approvals.On(v.message.Headers().Get(wire.HashHeader))
	} else {
		v.follows("a record that cannot change the state changed it",
			string(before.State.Canonical), string(rec.Snapshot))
	}
	for _, member := range []struct {
		name        string
		before, now any
	}{
		{"apply", carried.Apply, rec.Apply}, {"paused", carried.Paused, rec.Paused},
		{"policy", carried.Policy, rec.Policy},
		{"approvals", carried.Approvals, rec.Approvals},
	} {
		want, got := excerpts([]byte(jsonText(member.before)), []byte(jsonText(member.now)))
		v.follows("a record about a command changed the member "+member.name+" of the town",
			want, got)
	}
}

// checkNotPending checks a record after which nothing can be pending.
func (v *Verdict) checkNotPending(rec *commitlog.Record) {
	if rec.Pending != nil {
		v.want("a record that ends an application has a pending handoff",
			"", "run "+rec.Pending.Run.RunID)
	}
}

// jsonText renders a member of a record, "null" if the record lacks it.
func jsonText(v any) string {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return string(data)
}
