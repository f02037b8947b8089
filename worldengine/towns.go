package worldengine

import (
	"context"
	"sync"
)

// maxCacheBytes bounds the memory of the cache, counted as twice the canonical JSON of the states
// and a little for each town; a town beyond it is read from the log.
const maxCacheBytes = 256 << 20

// towns is what this instance knows of the towns: a cache over the log. An entry may be behind the
// log when another instance has moved the town, which the guard of every append finds out.
type towns struct {
	log *commitLog

	mu    sync.Mutex
	known map[string]entry
	bytes int
}

func newTowns(log *commitLog) *towns {
	return &towns{log: log, known: map[string]entry{}}
}

// get returns the town's entry from memory, or from the log. A town that does not exist is asked
// for each time: its zero entry is not kept.
func (t *towns) get(ctx context.Context, townID string) (entry, error) {
	t.mu.Lock()
	e, ok := t.known[townID]
	t.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := t.log.load(ctx, townID)
	if err != nil || e.seq == 0 {
		return e, err
	}
	t.set(townID, e)
	return e, nil
}

func (t *towns) set(townID string, e entry) {
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

func (t *towns) forget(townID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(townID)
}

// remove forgets a town. The caller holds the lock.
func (t *towns) remove(townID string) {
	if e, ok := t.known[townID]; ok {
		t.bytes -= cost(townID, e)
		delete(t.known, townID)
	}
}

func cost(townID string, e entry) int { return 512 + len(townID) + 2*len(e.state.Canonical) }

// keyLocks lets one handoff at a time be judged for an idempotency key: two handoffs with the same
// key may be of different towns, whose queues run side by side.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

// keyLock is taken by who sends to free.
type keyLock struct {
	free  chan struct{}
	users int
}

// hold waits until key is free, takes it, and returns what gives it back.
func (k *keyLocks) hold(key string) (release func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*keyLock{}
	}
	lock := k.held[key]
	if lock == nil {
		lock = &keyLock{free: make(chan struct{}, 1)}
		k.held[key] = lock
	}
	lock.users++
	k.mu.Unlock()
	lock.free <- struct{}{}
	return func() {
		<-lock.free
		k.mu.Lock()
		defer k.mu.Unlock()
		if lock.users--; lock.users == 0 {
			delete(k.held, key)
		}
	}
}
