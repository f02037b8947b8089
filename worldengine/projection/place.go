package projection

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// place is where a Runner stands in its stream.
type place struct {
	created   time.Time // when the stream was made: another one has other sequences
	seq       uint64    // of the last event that was projected
	end       uint64    // of the last event that the stream is known to have
	persisted time.Time // persistedAt of the event at seq
	caughtUp  time.Time // when seq was last known to be the end
}

// enter takes in the stream as it is found at some time, and returns where to begin to read: back
// from where the Runner stands, so that what was lost and written again meanwhile is seen, and at
// the beginning of a stream that is another one.
func (p *place) enter(info *jetstream.StreamInfo, now time.Time, lookback uint64) uint64 {
	last := info.State.LastSeq
	switch {
	case p.created.IsZero(): // what is there counts as projected, but is looked at
		p.created, p.seq, p.caughtUp = info.Created, last, now
	case !p.created.Equal(info.Created):
		p.created, p.seq, p.caughtUp = info.Created, 0, now
	}
	p.seq, p.end = min(p.seq, last), last
	return p.seq - min(p.seq, lookback) + 1
}

// see takes in that an event has come, behind which there were pending more.
func (p *place) see(seq, pending uint64) { p.end = max(p.end, seq+pending) }

// take moves on to an event that was projected; persisted is zero where it does not say when.
func (p *place) take(seq uint64, persisted time.Time) {
	if seq > p.seq {
		p.seq, p.persisted = seq, persisted
	}
}

// look takes in what the last event of the stream was at some time.
func (p *place) look(end uint64, now time.Time) {
	p.end = max(end, p.seq)
	if p.end == p.seq {
		p.caughtUp = now
	}
}

// behind returns how many events follow.
func (p *place) behind() uint64 { return p.end - min(p.end, p.seq) }

// since returns a time after which the oldest event that follows was persisted, as late as is
// known, or the zero time when none does. Events are in the order of persistedAt.
func (p *place) since() time.Time {
	switch {
	case p.behind() == 0:
		return time.Time{}
	case p.persisted.After(p.caughtUp):
		return p.persisted
	}
	return p.caughtUp
}
