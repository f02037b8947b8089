package fsck

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// history is a town's history, or the one of the world's pauses, as far as it was read.
type history struct {
	isTown        bool         // its subject is a town's
	read          uint64       // how many messages were read
	first, last   uint64       // their sequences
	truncated     bool         // the first message's guard names an earlier one
	unreadableSeq uint64       // a message that NATS cannot read; a restore may have left it behind
	holes         []hole       // that no repair has given up; the newest is the last
	gaps          records.Gaps // that repairs have given up
	// lastGood is the town after the last record that an engine can load, nil if there is none. For the
	// world only Seq and Paused are set.
	lastGood *machine.Town
}

// hole is a record of a town that does not follow the record before it in the log.
type hole struct {
	before, at uint64 // the sequences of both records; 0 if there is none before
	guard      uint64 // the sequence that the later record names instead
	read       uint64 // how many messages of the town were read before it
}

// town returns the town after the last message; nil if an engine cannot load it.
func (h *history) town() *machine.Town {
	if h.lastGood == nil || h.lastGood.Seq != h.last {
		return nil
	}
	return h.lastGood
}

// exists reports whether the town may exist after its history.
func (h *history) exists() bool {
	now := h.town()
	return h.read > 0 && (now == nil || now.Removed == nil)
}

// extend adds the next message to its history, from which it gets the town before it.
func (l *LogChecker) extend(v *message) {
	h := l.histories[v.Subject]
	isTown := strings.HasPrefix(v.Subject, layout.LogSubject(l.world, ""))
	if h == nil {
		guard, _ := commitlog.GuardOf(v.Header)
		h = &history{isTown: isTown, first: v.Sequence, truncated: guard > 0}
	}
	if isTown || commitlog.IsHistory(l.world, v.Subject) {
		l.histories[v.Subject] = h
	}
	v.history, v.prior = h, h.town()
	h.link(v.RawStreamMsg)
	h.read, h.last = h.read+1, v.Sequence
}

// link notes whether a message follows the one before it on a town's subject. The index has the same
// rule, by which it refuses handoffs.
func (h *history) link(m *jetstream.RawStreamMsg) {
	if !h.isTown {
		return
	}
	if guard, _ := commitlog.GuardOf(m.Header); guard != h.last {
		h.holes = append(h.holes, hole{h.last, m.Sequence, guard, h.read})
	}
	if records.KindOf(m.Header) != machine.KindRepair {
		return
	}
	if text := m.Header.Get(layout.GapsHeader); text != "" {
		h.gaps = append(h.gaps, records.ReadGaps(text, m.Sequence)...)
	} else if n := len(h.holes); n > 0 { // of an earlier program: it gave up the newest hole
		h.gaps = append(h.gaps, machine.Gap{After: h.holes[n-1].before, Before: m.Sequence})
	}
	h.holes = slices.DeleteFunc(h.holes, func(at hole) bool { return h.gaps.Cover(at.before, at.at) })
}

// readTown reads the town after the message like an engine, which ignores the kind.
func (l *LogChecker) readTown(v *message) error {
	h := v.history
	if v.rec.Kind == machine.KindRepair {
		v.prior = h.lastGood
	}
	if !h.isTown {
		h.lastGood = &machine.Town{Seq: v.Sequence, Paused: v.rec.Paused}
		return nil
	}
	state, err := town.ParseStored(v.rec.Snapshot)
	if err == nil && state.Hash == v.Header.Get(layout.HashHeader) {
		if h.lastGood == nil {
			l.Counts.Towns++
		}
		now := v.rec.Town(v.Sequence, state)
		h.lastGood = &now
	}
	v.state = &state
	return err
}

// townHistory returns the history of a town so far; an empty one if the town has none.
func (l *LogChecker) townHistory(townID string) *history {
	if h := l.histories[layout.LogSubject(l.world, wire.TownToken(townID))]; h != nil {
		return h
	}
	return new(history)
}
