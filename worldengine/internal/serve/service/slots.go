package service

import (
	"sync"
	"sync/atomic"
)

// slots shares a bounded number of slots between worlds, and within a world between keys, by a
// dynamic threshold (Choudhury and Hahne, 1998). A key is a town, run, idempotency key or user. If
// several worlds are open, a world may have at most as many slots as are free. A key may have at most
// as many as its world can still get, and never more than its own bound. So busy worlds and keys
// together always leave some slots for the others. A world or key without a slot gets one as long as
// any is free for it, and a key with slots never gets the last one.
//
// A request has a slot from its arrival to its answer (docs/overload.md). slots is safe for concurrent
// use.
type slots struct {
	perKey, total int
	openWorlds    *atomic.Int64 // how many worlds share the slots

	mu     sync.Mutex
	used   int
	worlds map[string]int    // slots by world, never 0
	owners map[slotOwner]int // slots by key, never 0
}

// slotOwner is a key, of a world, whose requests have slots.
type slotOwner struct{ world, key string }

// shedReason is the bound for which a request is answered with 429; its zero value means that there is
// none.
type shedReason int

const (
	granted    shedReason = iota
	keyFull               // the key has as many slots as it may
	worldFull             // the world has as many slots as it may
	serverFull            // no slot is free, and several worlds share them
	memoryFull            // the admitted requests use too much memory
	queueFull             // the engine's queue refused the request, after it was parsed
)

// slotLoad is the number of slots of a key, and of all keys of all worlds together.
type slotLoad struct{ key, all int }

// newSlots returns total slots, of which a key may have perKey. openWorlds counts the worlds that share
// them.
func newSlots(perKey, total int, openWorlds *atomic.Int64) *slots {
	return &slots{
		perKey: perKey, total: total, openWorlds: openWorlds,
		worlds: map[string]int{}, owners: map[slotOwner]int{},
	}
}

// acquire acquires a slot for a key of a world. If reason is granted, the caller MUST call release
// later, with the returned owner. acquire also returns the load by which it decided. It does not keep
// the key's bytes, and a refusal allocates nothing.
func (s *slots) acquire(world string, key []byte) (owner slotOwner, load slotLoad, reason shedReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	load = slotLoad{s.owners[slotOwner{world, string(key)}], s.used}
	room := s.total - s.used
	full := worldFull
	if s.openWorlds.Load() > 1 {
		if room <= 0 {
			full = serverFull
		}
		room = fairShare(s.worlds[world], room)
	}
	switch {
	case room <= 0:
		return owner, load, full
	case load.key >= s.perKey || load.key >= room:
		return owner, load, keyFull
	}
	owner = slotOwner{world, string(key)}
	s.used++
	s.worlds[world]++
	s.owners[owner]++
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
	if s.owners[owner]--; s.owners[owner] == 0 {
		delete(s.owners, owner)
	}
}

func (s *slots) load(owner slotOwner) slotLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slotLoad{s.owners[owner], s.used}
}
