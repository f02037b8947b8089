package fsck

import (
	"cmp"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
)

// townState is a town by its last message. If that is unreadable, the town is unknown.
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

// next returns the town after another message on its subject that is no record of it.
func (t *townState) next(seq uint64) townState {
	return townState{
		first: cmp.Or(t.first, seq), read: t.read + 1, last: seq,
		good: t.good, goodHash: t.goodHash, named: t.named,
	}
}

// checkGuard checks that a record's commit was guarded by the town's message before it.
func (v *Verdict) checkGuard(before uint64) {
	v.follows("the commit was not guarded by the town's message before it",
		strconv.FormatUint(before, 10),
		v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
}

// checkNotPending checks a record after which nothing can be pending.
func (v *Verdict) checkNotPending(rec *commitlog.Record) {
	if rec.Pending != nil {
		v.want("a record that ends an application has a pending handoff",
			"", "run "+rec.Pending.Run.RunID)
	}
}
