package service

import (
	"sync"
	"sync/atomic"
)

// slots shares a bounded number of slots between worlds, and within a world between towns, by a
// dynamic threshold (Choudhury and Hahne, 1998). If several worlds are open, a world may have at most
// as many slots as are free. A town may have at most as many as its world can still get, and never
// more than its own bound. So busy worlds and towns together always leave some slots for the others.
// A world or town without a slot gets one as long as any is free for it, and a town with slots never
// gets the last one.
//
// A request has a slot from its arrival to its answer (docs/overload.md). Here a "town" is any key
// by which slots are shared: a town, run, idempotency key or user. slots is safe for concurrent
// use.
type slots struct {
	perTown, total int
	open           *atomic.Int64 // how many worlds share the slots

	mu     sync.Mutex
	used   int
	worlds map[string]int    // slots by world, never 0
	towns  map[slotOwner]int // slots by town, never 0
}

// slotOwner is a town, of a world, whose requests have slots.
type slotOwner struct{ world, town string }

// shedReason is the bound for which a request is answered with 429; its zero value means that there is
// none.
type shedReason int

const (
	granted    shedReason = iota
	townFull              // the town has as many slots as it may
	worldFull             // the world has as many slots as it may
	serverFull            // no slot is free, and several worlds share them
	memoryFull            // the admitted requests use too much memory
	queueFull             // the engine's queue refused the request, after it was parsed
)

// slotLoad is the number of slots of a town, and of all towns of all worlds together.
type slotLoad struct{ town, all int }

// newSlots returns total slots, of which a town may have perTown. open counts the worlds that share
// them.
func newSlots(perTown, total int, open *atomic.Int64) *slots {
	return &slots{
		perTown: perTown, total: total, open: open,
		worlds: map[string]int{}, towns: map[slotOwner]int{},
	}
}

// acquire acquires a slot for a town with the name id. If why is granted, the caller MUST call release
// later, with the returned owner. acquire also returns the load by which it decided. It does not keep
// id, and a refusal allocates nothing.
func (s *slots) acquire(world string, id []byte) (owner slotOwner, load slotLoad, why shedReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	load = slotLoad{s.towns[slotOwner{world, string(id)}], s.used}
	room := s.total - s.used
	full := worldFull
	if s.open.Load() > 1 {
		if room <= 0 {
			full = serverFull
		}
		room = fairShare(s.worlds[world], room)
	}
	switch {
	case room <= 0:
		return owner, load, full
	case load.town >= s.perTown || load.town >= room:
		return owner, load, townFull
	}
	owner = slotOwner{world, string(id)}
	s.used++
	s.worlds[world]++
	s.towns[owner]++
	return owner, load, granted
}

// fairShare returns how much more a world may use: as much as keeps its share no larger than the rest that is free.
func fairShare[N int | int64](taken, free N) N { return max(free-taken+1, 0) / 2 }

func (s *slots) release(owner slotOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.worlds[owner.world]--; s.worlds[owner.world] == 0 {
		delete(s.worlds, owner.world)
	}
	if s.towns[owner]--; s.towns[owner] == 0 {
		delete(s.towns, owner)
	}
}

func (s *slots) load(owner slotOwner) slotLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slotLoad{s.towns[owner], s.used}
}
