package worldengine

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// knownRun is what this instance knows of a run that is appended to.
type knownRun struct {
	runID string
	state *runevents.RunState
	token string // of the run's town; "" while the run has no events
	guard uint64 // the log sequence of the last message on the run's subject that the state has
	epoch uint64 // of the cache when the run was loaded
	// streamSeq is how far the run was read in the event stream.
	streamSeq uint64
}

// add takes in events that the log holds at seq.
func (r *knownRun) add(
	byEngine bool, seq uint64, token string, run *runevents.Run, persistedAt time.Time,
) error {
	r.guard, r.token = seq, token
	return r.state.Add(byEngine, run.Records(persistedAt)...)
}

// take takes in a message of the run's subject.
func (r *knownRun) take(msg *jetstream.RawStreamMsg) error {
	rec, err := readRecord(msg.Data)
	if err == nil && rec.Run == nil {
		err = fmt.Errorf("worldengine: a record of kind %q without a run", rec.Kind)
	}
	if err != nil {
		return fmt.Errorf("log sequence %d: %w", msg.Sequence, err)
	}
	if rec.Kind == kindRun {
		r.state.SetClosing(rec.Closing)
	}
	return r.add(rec.Kind == kindRun, msg.Sequence, TownToken(rec.TownID), rec.Run, msg.Time)
}

// maxCachedEvents bounds the memory of the cache, at some 400 bytes an event; runs beyond it are read
// again. The run that was appended to last is kept whatever its size.
const maxCachedEvents = 100_000

// runCache keeps the runs that were appended to last. Whoever takes a run has it alone.
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

// weight is what a run counts for: its events, and about as much as ten for itself.
func (r *knownRun) weight() int { return r.state.Len() + 10 }

// now returns the epoch of what is loaded from now on.
func (c *runCache) now() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// clear forgets every run, those that are taken too: the log may have lost its tail.
func (c *runCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.events, c.epoch = nil, 0, c.epoch+1
}
