package runevents

import (
	"fmt"
	"time"
)

// delay is how long an event had been persisted at some moment.
type delay struct {
	lag    time.Duration
	record Record
}

// Lag returns how far projections are behind what was persisted (v1, section 1.4: at most 1 s is
// normal): how long the oldest event of the last call that took any in had been persisted by then,
// or how long the event that a paused run waits for has been by now, whichever is longer. It is 0
// before the first event and never negative.
func (p *Projector) Lag() time.Duration { return p.worst().lag }

func (p *Projector) worst() delay {
	now := p.config.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := p.last
	for _, paused := range p.paused {
		at := parsedTime(paused.observed.PersistedAt)
		if lag := now.Sub(at); !at.IsZero() && lag > worst.lag {
			worst = delay{lag, paused.observed}
		}
	}
	return worst
}

// watchLag notes the lag of a call that is about to return and raises PROJECTOR_LAG_HIGH when the
// lag has become too high, once until it has been lower.
func (p *Projector) watchLag(oldest *oldestRecord) {
	if !oldest.at.IsZero() {
		lag := max(p.config.Now().Sub(oldest.at), 0)
		p.mu.Lock()
		p.last = delay{lag, oldest.record}
		p.mu.Unlock()
	}
	worst := p.worst()
	high := worst.lag > p.config.LagHigh
	if high && !p.lagging {
		p.raise(NewAlert(ProjectorLagHigh, &worst.record, fmt.Sprintf(
			"projections are %v behind, more than %v", worst.lag, p.config.LagHigh)))
	}
	p.lagging = high
}

// oldestRecord finds the record that was persisted first among those that were taken in.
type oldestRecord struct {
	at     time.Time // zero before the first
	record Record
}

// among considers what moved a run from before to after: the first of the records that is new in
// it, and the event that it was paused at.
func (o *oldestRecord) among(records []Record, before, after *liveRun) {
	if before.pause != nil && after.pause == nil {
		o.consider(&before.pause.observed)
	}
	for i := range records {
		seq := records[i].RunSeq
		if seq > before.snapshot.LastEventSeq && seq <= after.snapshot.LastEventSeq {
			o.consider(&records[i])
			return
		}
	}
}

func (o *oldestRecord) consider(r *Record) {
	at := parsedTime(r.PersistedAt)
	if at.IsZero() || !o.at.IsZero() && !at.Before(o.at) {
		return
	}
	o.at, o.record = at, *r
	o.record.Payload = nil
}
