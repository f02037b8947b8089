package appends

import (
	"sync"
	"sync/atomic"

	"worldengine/worldengine/internal/engine/projector"
)

// maxCachedEvents bounds the memory of the cache, at some 400 bytes an event. A cache that exceeds
// it forgets all runs but the last one.
const maxCachedEvents = 100_000

// cache keeps the projections of runs that were appended to lately. It is safe for concurrent use.
type cache struct {
	mu         sync.Mutex
	runs       map[string]*projector.Projection
	events     int
	generation atomic.Uint64 // number of calls of clear; set with the lock
}

// remove returns a run for the caller alone, or nil, and forgets it.
func (c *cache) remove(runID string) *projector.Projection {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := c.runs[runID]
	if run != nil {
		delete(c.runs, runID)
		c.events -= weight(run)
	}
	return run
}

// put puts a run into the cache, unless clear was called after the generation: the log may have lost
// records that were read before.
func (c *cache) put(run *projector.Projection, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation.Load() {
		return
	}
	if c.events += weight(run); c.runs == nil || c.events > maxCachedEvents {
		c.runs, c.events = map[string]*projector.Projection{}, weight(run)
	}
	c.runs[run.RunID] = run
}

// weight is the number of a run's events, plus ten for the run itself.
func weight(run *projector.Projection) int { return run.State.Len() + 10 }

// clear forgets every run; put then ignores the runs of earlier generations.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs, c.events = nil, 0
	c.generation.Add(1)
}
