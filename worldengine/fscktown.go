package worldengine

import (
	"cmp"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
)

// fsckTown is what the last message read of a town said. One that could not be read is not known.
type fsckTown struct {
	first   uint64 // the sequence of the first message read of it
	read    uint64 // how many were read
	known   bool
	seq     uint64
	epoch   int64
	hash    string
	apply   Binding
	paused  *PausedBy
	pending *pending
}

// next is the town after one more message of it, at a sequence, that says nothing of it.
func (t *fsckTown) next(seq uint64) fsckTown {
	return fsckTown{first: cmp.Or(t.first, seq), read: t.read + 1}
}

// carries checks what a record of a town has from the one before it, whatever its kind changes.
func (v *fsckVerdict) carries(kind recordKind, prior, now *fsckTown) {
	v.follows("the commit was not guarded by the town's message before it",
		strconv.FormatUint(prior.seq, 10), v.message.Headers().Get(jetstream.ExpectedLastSubjSeqHeader))
	if now.epoch < prior.epoch {
		v.follows("the town's day was lowered", text(prior.epoch)+" or later", text(now.epoch))
	}
	if kind == kindPending || kind == kindControl {
		v.follows("a record that changes no state has another one", prior.state(), now.state())
	}
	if kind != kindPut {
		v.follows("a record that is no put changed who applies the town's commands",
			string(prior.apply), string(now.apply))
	}
	if kind != kindControl {
		v.follows("a record that is no signal paused or resumed the town",
			jsonText(prior.paused), jsonText(now.paused))
	}
	if kind == kindControl {
		want, got := excerpts([]byte(jsonText(prior.pending)), []byte(jsonText(now.pending)))
		v.follows("a signal changed what is pending", want, got)
	}
	if kind == kindPut && prior.pending != nil {
		v.follows("the town was put while a command was being applied to it", "", "run "+prior.pending.Run.RunID)
	}
}

// settled checks that a record after which nothing can be pending says so.
func (v *fsckVerdict) settled(rec *record) {
	if rec.Pending != nil {
		v.want("the record says that a command is being applied", "", "run "+rec.Pending.Run.RunID)
	}
}

// free checks that a handoff could be judged on the town as it was.
func (t *fsckTown) free(v *fsckVerdict) {
	if t.pending != nil {
		v.follows("a handoff was judged while another was being applied to its town", "", "run "+t.pending.Run.RunID)
	}
	if t.paused != nil {
		v.follows("a handoff was judged while its town was paused", "", "signal "+t.paused.SignalID)
	}
}

func (t *fsckTown) state() string { return stateText(&t.hash, &t.epoch) }

// jsonText renders what a record says of a town, "null" where it says nothing.
func jsonText(v any) string {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return string(data)
}
