package runs

import (
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// knownRun is what this writer knows of a run that is appended to.
type knownRun struct {
	runID string
	state *runevents.RunState
	token string // of the run's town; "" while the run has no events
	guard uint64 // the log sequence of the last message on the run's subject that the state has
	epoch uint64 // of the cache when the run was loaded
	read  uint64 // the log sequence of the last record of the run that the state has
}

// add takes in events that the log holds at seq.
func (r *knownRun) add(
	kind commitlog.Kind, seq uint64, townID string, run *runevents.Run, persistedAt time.Time,
) error {
	r.read, r.token = seq, wire.TokenOf(townID)
	if kind == commitlog.KindRun || kind == commitlog.KindEvents {
		r.guard = seq
	}
	return r.state.Add(kind != commitlog.KindEvents, run.Records(persistedAt)...)
}

// take takes in a record of the run.
func (r *knownRun) take(rec stored) error {
	if rec.Kind == commitlog.KindRun {
		r.state.SetClosing(rec.Closing)
	}
	return r.add(rec.Kind, rec.msg.Sequence, rec.TownID, rec.Run, commitlog.At(rec.msg))
}

// maxCachedEvents bounds the memory of the cache, at some 400 bytes an event; runs beyond it are
// read again. The run that was appended to last is kept whatever its size.
const maxCachedEvents = 100_000

// runCache keeps the runs that were appended to last. The caller that takes a run has it alone. A
// runCache is safe for concurrent use.
type runCache struct {
	mu     sync.Mutex
	known  map[string]*knownRun
	events int
	epoch  uint64
}

// take returns the run and forgets it, or nil.
func (c *runCache) take(runID string) *knownRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.known[runID]
	c.drop(run)
	return run
}

// keep puts a run back, unless clear was called since it was loaded.
func (c *runCache) keep(run *knownRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run.epoch != c.epoch {
		return
	}
	if c.known == nil {
		c.known = map[string]*knownRun{}
	}
	c.known[run.runID] = run
	c.events += run.weight()
	for _, other := range c.known {
		if c.events <= maxCachedEvents {
			break
		}
		if other != run { // which is larger than the cache by itself, at worst
			c.drop(other)
		}
	}
}

// drop forgets run, which may be nil. The caller holds the lock.
func (c *runCache) drop(run *knownRun) {
	if run != nil {
		delete(c.known, run.runID)
		c.events -= run.weight()
	}
}

// weight is the number of a run's events, and ten for the run itself.
func (r *knownRun) weight() int { return r.state.Len() + 10 }

// now returns the epoch of runs that are loaded from now on.
func (c *runCache) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// clear forgets every run, those that are taken too.
func (c *runCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.events, c.epoch = nil, 0, c.epoch+1
}
