package runevents

import (
	"fmt"
	"time"
)

// Behind reports the bus reader's lag: the time since which events wait to be read, or the zero
// time for none, which is the initial state. Call it now and then, also while no events come. It
// raises PROJECTOR_LAG_HIGH once each time that Lag becomes too high. The alert is about the last
// event that Apply got; without one there is none.
func (p *Projector) Behind(since time.Time) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	p.since = since
	p.mu.Unlock()
	p.watchLag()
}

// Lag returns the delay of the projections behind persisted events (v1, section 1.4: at most 1 s is
// normal). It is the longer of two: how long an event has waited for Apply, and how long a paused
// run's missing event has been persisted. It is never negative.
func (p *Projector) Lag() time.Duration {
	lag, _ := p.lag()
	return lag
}

// lag returns the lag and the event that causes it.
func (p *Projector) lag() (time.Duration, Record) {
	now := p.config.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	worst, record := time.Duration(0), p.front
	if !p.since.IsZero() {
		worst = max(now.Sub(p.since), 0)
	}
	for _, paused := range p.paused {
		at := parsedTime(paused.observed.PersistedAt)
		if lag := now.Sub(at); !at.IsZero() && lag > worst {
			worst, record = lag, paused.observed
		}
	}
	return worst, record
}

// watchLag raises PROJECTOR_LAG_HIGH. The caller holds turn.
func (p *Projector) watchLag() {
	lag, record := p.lag()
	high := lag > p.config.LagHigh
	if high && !p.lagging && record.RunID != "" {
		p.raise(NewAlert(ProjectorLagHigh, &record, fmt.Sprintf(
			"projections are %v behind, more than %v", lag, p.config.LagHigh)))
	}
	p.lagging = high
}
