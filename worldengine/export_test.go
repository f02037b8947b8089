package worldengine

import (
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// Narrate is narrate for the tests outside the package.
func Narrate(p *runevents.Producer, h *handoff.Handoff, r *handoff.Result, waited bool) error {
	start := atOnce
	if waited {
		start = queued
	}
	return narrate(p, h, r, start)
}

// FsckLog checks messages as the log of a world, as Fsck does, and counts them. Nothing leaves the log
// meanwhile.
func FsckLog(world string, log []*jetstream.RawStreamMsg) ([]FsckFinding, FsckCounts, int) {
	var counts FsckCounts
	var found []FsckFinding
	l := newFsckLog(world, &counts)
	for _, raw := range log {
		v := l.check(newFsckMessage(follow.Stored(raw), raw.Sequence, raw.Time))
		found = append(append(found, v.own...), v.history...)
	}
	return found, counts, len(l.runs)
}
