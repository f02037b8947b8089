package commitlog

import (
	"context"
	"sync"
)

// maxCacheBytes bounds the memory of the cache, counted as twice the canonical JSON of the states,
// the handoffs that wait for approval, and a little for each town. A town beyond it is read from
// the log.
const maxCacheBytes = 256 << 20

// Towns is a cache of current entries over the log. An entry is stale if another instance has
// changed the town; the guard of the next commit detects that. It is safe for concurrent use.
type Towns struct {
	log *Log

	mu    sync.Mutex
	known map[string]Entry
	bytes int
}

// NewTowns returns an empty cache over log.
func NewTowns(log *Log) *Towns {
	return &Towns{log: log, known: map[string]Entry{}}
}

// Get returns the town's entry from memory, or from the log; its errors are Log.Load's. The zero
// entry of a town that does not exist is not kept.
func (t *Towns) Get(ctx context.Context, townID string) (Entry, error) {
	t.mu.Lock()
	e, ok := t.known[townID]
	t.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := t.log.Load(ctx, townID)
	if err != nil || e.Seq == 0 {
		return e, err
	}
	t.Set(townID, e)
	return e, nil
}

// Set keeps the entry that this writer has read or committed.
func (t *Towns) Set(townID string, e Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(townID)
	t.known[townID] = e
	t.bytes += cost(townID, e)
	for other := range t.known {
		if t.bytes <= maxCacheBytes {
			return
		}
		t.remove(other)
	}
}

// Forget makes the next Get read the town from the log.
func (t *Towns) Forget(townID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(townID)
}

// Clear forgets all towns.
func (t *Towns) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
	t.bytes = 0
}

// remove forgets a town. The caller holds the lock.
func (t *Towns) remove(townID string) {
	if e, ok := t.known[townID]; ok {
		t.bytes -= cost(townID, e)
		delete(t.known, townID)
	}
}

func cost(townID string, e Entry) int {
	size := 512 + len(townID) + 2*len(e.State.Canonical)
	for i := range e.Approvals {
		size += 512 + len(e.Approvals[i].Handoff)
	}
	return size
}
