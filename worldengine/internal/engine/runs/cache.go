package runs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// knownRun is this writer's knowledge of a run that producers append to.
type knownRun struct {
	runID string
	state *runevents.RunState
	token string // of the run's town; "" while the run has no events
	guard uint64 // the log sequence of the last message on the run's subject that the state has
	epoch uint64 // of the cache when the run was loaded
	read  uint64 // the log sequence of the last record of the run that the state has
	last  int64  // the runSeq of the last event that the state has
	// stored is the number of messages on the run's subject, or more, since some may have expired.
	stored int64
	cut    bool   // the log does not keep some of the run's events
	lane   string // of the alert that is owed for the run; "" for none
}

// take adds a record of a run, at a sequence of the log, and raises the alerts about it. If the
// record is of another run, it returns ErrRunDamaged.
func (s *Store) take(
	run *knownRun, rec *commitlog.Record, seq uint64, persistedAt time.Time,
) error {
	run.read, run.token = seq, wire.TokenOf(rec.TownID)
	switch rec.Kind {
	case commitlog.KindRun:
		run.guard, run.stored = seq, run.stored+1
		run.state.SetClosing(rec.Closing)
	case commitlog.KindEvents:
		run.guard, run.stored = seq, run.stored+1
	}
	records := rec.Run.Records(persistedAt)
	if len(records) > 0 {
		run.cut = run.cut || run.last == 0 && records[0].RunSeq > 1 // the index has forgotten them too
		run.last = records[len(records)-1].RunSeq
	}
	alerts, err := run.state.Add(rec.Kind != commitlog.KindEvents, records...)
	if err != nil {
		return fmt.Errorf("%w: log sequence %d: %w", ErrRunDamaged, seq, err)
	}
	if s.projects.Load() && seq > s.position.Load() {
		s.projected.Add(seq, struct{}{})
	}
	s.raise(run, seq, alerts...)
	return nil
}

// maxCachedEvents bounds the memory of the cache, at some 400 bytes an event. A cache that exceeds
// it forgets all runs but the last one.
const maxCachedEvents = 100_000

// runCache keeps the runs that were appended to lately. The caller that takes a run has it alone. A
// runCache is safe for concurrent use.
type runCache struct {
	mu     sync.Mutex
	known  map[string]*knownRun
	events int
	epoch  atomic.Uint64 // number of calls of clear; set with the lock
}

// take returns the run, or nil, and forgets it.
func (c *runCache) take(runID string) *knownRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.known[runID]
	if run != nil {
		delete(c.known, runID)
		c.events -= run.weight()
	}
	return run
}

// keep puts a run back, unless clear was called since it was loaded.
func (c *runCache) keep(run *knownRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run.epoch != c.epoch.Load() {
		return
	}
	if c.events += run.weight(); c.known == nil || c.events > maxCachedEvents {
		c.known, c.events = map[string]*knownRun{}, run.weight()
	}
	c.known[run.runID] = run
}

// weight is the number of a run's events, plus ten for the run itself.
func (r *knownRun) weight() int { return r.state.Len() + 10 }

// clear forgets every run; keep then ignores the runs that are taken now.
func (c *runCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.events = nil, 0
	c.epoch.Add(1)
}
