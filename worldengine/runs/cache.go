package runs

import (
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// KnownRun is what this writer knows of a run that is appended to.
type KnownRun struct {
	RunID string
	State *runevents.RunState
	token string // of the run's town; "" while the run has no events
	guard uint64 // the log sequence of the last message on the run's subject that the state has
	Epoch uint64 // of the cache when the run was loaded
	read  uint64 // the log sequence of the last record of the run that the state has
}

// add takes in events that the log holds at seq.
func (r *KnownRun) add(
	kind commitlog.Kind, seq uint64, townID string, run *runevents.Run, persistedAt time.Time,
) error {
	r.read, r.token = seq, wire.TokenOf(townID)
	if kind == commitlog.KindRun || kind == commitlog.KindEvents {
		r.guard = seq
	}
	return r.State.Add(kind != commitlog.KindEvents, run.Records(persistedAt)...)
}

// take takes in a record of the run.
func (r *KnownRun) take(rec stored) error {
	if rec.Kind == commitlog.KindRun {
		r.State.SetClosing(rec.Closing)
	}
	return r.add(rec.Kind, rec.msg.Sequence, rec.TownID, rec.Run, commitlog.At(rec.msg))
}

// MaxCachedEvents bounds the memory of the cache, at some 400 bytes an event; runs beyond it are
// read again. The run that was appended to last is kept whatever its size.
const MaxCachedEvents = 100_000

// RunCache keeps the runs that were appended to last. The caller that takes a run has it alone. A
// RunCache is safe for concurrent use.
type RunCache struct {
	mu     sync.Mutex
	Known  map[string]*KnownRun
	Events int
	epoch  uint64
}

// Take returns the run and forgets it, or nil.
func (c *RunCache) Take(runID string) *KnownRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.Known[runID]
	c.drop(run)
	return run
}

// Keep puts a run back, unless Clear was called since it was loaded.
func (c *RunCache) Keep(run *KnownRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run.Epoch != c.epoch {
		return
	}
	if c.Known == nil {
		c.Known = map[string]*KnownRun{}
	}
	c.Known[run.RunID] = run
	c.Events += run.weight()
	for _, other := range c.Known {
		if c.Events <= MaxCachedEvents {
			break
		}
		if other != run { // which is larger than the cache by itself, at worst
			c.drop(other)
		}
	}
}

// drop forgets run, which may be nil. The caller holds the lock.
func (c *RunCache) drop(run *KnownRun) {
	if run != nil {
		delete(c.Known, run.RunID)
		c.Events -= run.weight()
	}
}

// weight is the number of a run's events, and ten for the run itself.
func (r *KnownRun) weight() int { return r.State.Len() + 10 }

// Now returns the epoch of runs that are loaded from now on.
func (c *RunCache) Now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// Clear forgets every run, those that are taken too: the log may have lost its tail.
func (c *RunCache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Known, c.Events, c.epoch = nil, 0, c.epoch+1
}
