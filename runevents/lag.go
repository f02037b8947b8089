package runevents

import (
	"fmt"
	"time"
)

// Behind says what the projector was not given yet by what reads the events for it: something
// that was persisted since then, or nothing more for the zero time, which a new projector starts
// with. Call it now and then, also while no events come: it raises PROJECTOR_LAG_HIGH when Lag has
// become too high, once until it has been lower. The alert is about the last event that was given
// to Apply; without one there is none.
func (p *Projector) Behind(since time.Time) {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	p.since = since
	p.mu.Unlock()
	p.watchLag()
}

// Lag returns how far projections are behind what was persisted (v1, section 1.4: at most 1 s is
// normal): how long there has been something that was not given to Apply yet, or how long the event
// that a paused run waits for has been persisted, whichever is longer. It is never negative.
func (p *Projector) Lag() time.Duration {
	lag, _ := p.lag()
	return lag
}

// lag returns the lag and the event that is behind by it.
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
