package projection

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// place is where a Runner stands in its source.
type place struct {
	created  time.Time // when the stream was made: another one has other sequences
	seq      uint64    // of the last mention whose run was projected
	pending  uint64    // how many mentions the source is known to have that have not come
	came     uint64    // how many have come, of the present reading
	taken    uint64    // how many of those were projected
	stored   time.Time // when the source stored the mention at seq
	caughtUp time.Time // when nothing was known to follow seq
	before   watermark // of the Runner before
}

// resume takes in where a Runner before this one stood, before this one has entered the stream.
func (p *place) resume(w watermark) {
	if p.created.IsZero() {
		p.before = w
	}
}

// enter takes in the stream as it is found at some time, and returns where to begin to read: back
// from where the Runner stands, so that what was lost and written again meanwhile is seen, and at
// the beginning of a stream that is another one.
func (p *place) enter(info *jetstream.StreamInfo, now time.Time, lookback uint64) uint64 {
	last := info.State.LastSeq
	switch {
	case p.created.IsZero() && p.before.Created.Equal(info.Created):
		p.created, p.seq, p.caughtUp = info.Created, p.before.Seq, now
	case p.created.IsZero() && !p.before.Created.IsZero(): // it was made again since
		p.created, p.seq, p.caughtUp = info.Created, 0, now
	case p.created.IsZero(): // what is there counts as projected, but some of it is looked at
		p.created, p.seq, p.caughtUp = info.Created, last, now
	case !p.created.Equal(info.Created):
		p.created, p.seq, p.caughtUp = info.Created, 0, now
	}
	p.seq = min(p.seq, last)
	return p.seq - min(p.seq, lookback) + 1
}

// begin takes in how many mentions a reading has before it.
func (p *place) begin(pending uint64) { p.pending, p.came, p.taken = pending, 0, 0 }

// see takes in that a mention has come, behind which there were pending more.
func (p *place) see(pending uint64) { p.came, p.pending = p.came+1, pending }

// take moves on to the last of some mentions, whose runs were projected.
func (p *place) take(seq uint64, mentions int, stored time.Time) {
	p.taken += uint64(mentions)
	if seq > p.seq {
		p.seq, p.stored = seq, stored
	}
}

// look takes in that some mentions were sent at a time, and how many were not yet. What was seen of
// mentions that have come since is newer.
func (p *place) look(sent, pending uint64, now time.Time) {
	if sent == p.came {
		p.pending = pending
	}
	if p.behind() == 0 {
		p.caughtUp = now
	}
}

// behind returns how many mentions follow.
func (p *place) behind() uint64 { return p.pending + p.came - p.taken }

// since returns a time after which the oldest mention that follows was stored, as late as is known,
// or the zero time when none does. Mentions are in the order of their times.
func (p *place) since() time.Time {
	switch {
	case p.behind() == 0:
		return time.Time{}
	case p.stored.After(p.caughtUp):
		return p.stored
	}
	return p.caughtUp
}
