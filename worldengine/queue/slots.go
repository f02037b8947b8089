package queue

import "sync"

// Slots shares a bounded number of slots between towns by a dynamic threshold (Choudhury and Hahne,
// 1998). A town may have at most as many slots as are free, and never more than its own bound. So
// busy towns together always leave some slots for the others. A town without a slot gets one as
// long as any is free, and a town with slots never takes the last one.
//
// The service takes a slot for each request from its arrival to its answer, and a Queue for each
// task until it is finished (docs/overload.md). A "town" is the key of sharing; the service also
// shares by run and by idempotency key. Slots is safe for concurrent use.
type Slots struct {
	perTown, total int

	mu    sync.Mutex
	taken int
	towns map[string]int // slots by town, never 0
}

// Refusal is why no slot was given; its zero value means that a slot was.
type Refusal int

const (
	// Granted: the slot was given.
	Granted Refusal = iota
	// TownFull: the town has as many slots as it may.
	TownFull
	// AllFull: no slot is free.
	AllFull
)

// Load is the number of slots of a town, and of all towns together.
type Load struct{ Town, All int }

// NewSlots returns total slots, of which a town may have perTown.
func NewSlots(perTown, total int) *Slots {
	return &Slots{perTown: perTown, total: total, towns: map[string]int{}}
}

// Take takes a slot for a town. If the result is Granted, the caller has to call Release later.
func (s *Slots) Take(town string) Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.towns[town]
	refusal := s.refusal(has)
	if refusal == Granted {
		s.grant(town, has)
	}
	return refusal
}

// TakeBytes is Take for a town's name in bytes. It returns the name for Release, and the load by
// which it decided. It does not keep id, and a refusal allocates nothing.
func (s *Slots) TakeBytes(id []byte) (town string, load Load, refusal Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	load = Load{s.towns[string(id)], s.taken}
	if refusal = s.refusal(load.Town); refusal == Granted {
		town = string(id)
		s.grant(town, load.Town)
	}
	return town, load, refusal
}

// Force takes a slot for a town even if none is free.
func (s *Slots) Force(town string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant(town, s.towns[town])
}

// Release gives back a slot of a town.
func (s *Slots) Release(town string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.towns[town]--; s.towns[town] == 0 {
		delete(s.towns, town)
	}
}

// Load returns the present load.
func (s *Slots) Load(town string) Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Load{s.towns[town], s.taken}
}

// Taken returns the number of slots of all towns.
func (s *Slots) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Total returns how many slots there are.
func (s *Slots) Total() int { return s.total }

// refusal decides about one more slot for a town; has counts its slots. The caller holds the lock.
func (s *Slots) refusal(has int) Refusal {
	free := s.total - s.taken
	switch {
	case free <= 0:
		return AllFull
	case has >= s.perTown || has >= free:
		return TownFull
	}
	return Granted
}

func (s *Slots) grant(town string, has int) {
	s.taken++
	s.towns[town] = has + 1
}
