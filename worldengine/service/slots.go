package service

import "sync"

// slots shares a bounded number of slots between towns by a dynamic threshold (Choudhury and Hahne,
// 1998). A town may have at most as many slots as are free, and never more than its own bound. So
// busy towns together always leave some slots for the others. A town without a slot gets one as
// long as any is free, and a town with slots never takes the last one.
//
// A request has a slot from its arrival to its answer (docs/overload.md). Here a "town" is any key
// by which slots are shared: a town, run, idempotency key or user. slots is safe for concurrent
// use.
type slots struct {
	perTown, total int

	mu    sync.Mutex
	taken int
	towns map[string]int // slots by town, never 0
}

// refusal is the reason to answer a request with 429; its zero value means that there is none.
type refusal int

const (
	granted   refusal = iota
	townFull          // the town has as many slots as it may
	allFull           // no slot is free
	noBytes           // the requests that are held take too much memory
	queueFull         // the engine's queue refused the request, after it was parsed
)

// load is the number of slots of a town, and of all towns together.
type load struct{ town, all int }

// newSlots returns total slots, of which a town may have perTown.
func newSlots(perTown, total int) *slots {
	return &slots{perTown: perTown, total: total, towns: map[string]int{}}
}

// take takes a slot for a town with the name id. If why is granted, the caller has to call release
// later, with the returned name. take also returns the load by which it decided. It does not keep
// id, and a refusal allocates nothing.
func (s *slots) take(id []byte) (town string, now load, why refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = load{s.towns[string(id)], s.taken}
	free := s.total - s.taken
	switch {
	case free <= 0:
		return "", now, allFull
	case now.town >= s.perTown || now.town >= free:
		return "", now, townFull
	}
	town = string(id)
	s.taken++
	s.towns[town]++
	return town, now, granted
}

func (s *slots) release(town string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.towns[town]--; s.towns[town] == 0 {
		delete(s.towns, town)
	}
}

func (s *slots) load(town string) load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return load{s.towns[town], s.taken}
}
