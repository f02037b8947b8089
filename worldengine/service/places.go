package service

import (
	"sync"
	"sync/atomic"
)

// places bounds how many requests are between their arrival and their answer, and shares them between
// towns as the engine's queues do: a town may have at most as many as there are free ones, and never
// more than perTown. So a town with none gets one as long as any is free. It is safe for concurrent
// use, and a refusal allocates nothing. Reads about runs and keys share theirs between those: a town stands
// for whatever requests are about.
type places struct {
	perTown, total int

	mu    sync.Mutex
	taken int
	towns map[string]int // never 0
}

func newPlaces(perTown, total int) *places {
	return &places{perTown: perTown, total: total, towns: map[string]int{}}
}

// take takes a place for a request about a town, or says why there is none, and for how many
// milliseconds its client is asked to pause.
func (p *places) take(town []byte) (name string, why reason, pause int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has, free := p.towns[string(town)], p.total-p.taken
	switch {
	case free <= 0:
		return "", noPlace, pauseFor(has, p.taken)
	case has >= p.perTown || has >= free:
		return "", noPlaceForTown, pauseFor(has, p.taken)
	}
	name = string(town)
	p.taken++
	p.towns[name] = has + 1
	return name, none, 0
}

// giveBack gives back what take took.
func (p *places) giveBack(town string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.towns[town]--; p.towns[town] == 0 {
		delete(p.towns, town)
	}
}

// pause returns for how many milliseconds a client is asked to pause whose request found its town's
// queue full.
func (p *places) pause(town string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pauseFor(p.towns[town], p.taken)
}

func (p *places) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// What a client is asked to pause at most, and what requests are taken to need each: those of a town one
// after another, those of a world side by side.
const (
	longestPause = 1000 // milliseconds
	pauseStep    = 50   // what pauses are multiples of
	perOfTown    = 2    // milliseconds a request that waits for the same town
	ofWorldPerMs = 4    // requests of a world a millisecond
)

// pauseFor returns the pause in milliseconds that a client is asked to make: about as long as what is
// before it takes, so that it comes back when there is room, and later the more wait.
func pauseFor(ofTown, ofWorld int) int {
	pause := max(ofTown*perOfTown, ofWorld/ofWorldPerMs)
	pause = (pause + pauseStep - 1) / pauseStep * pauseStep
	return min(max(pause, pauseStep), longestPause)
}

// heldBytes bounds the memory of all requests that are between their arrival and their answer.
type heldBytes struct {
	bound int64
	held  atomic.Int64
}

// take takes bytes, unless they do not fit.
func (h *heldBytes) take(bytes int64) bool {
	for {
		held := h.held.Load()
		if held+bytes > h.bound {
			return false
		}
		if h.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

// place is what one request has of places and bytes, from its arrival to its answer.
type place struct {
	in    *places
	held  *heldBytes
	town  string
	bytes int64
	given atomic.Bool
}

// giveBack gives it back, the first time that it is called.
func (p *place) giveBack() {
	if p.given.CompareAndSwap(false, true) {
		p.in.giveBack(p.town)
		p.held.held.Add(-p.bytes)
	}
}
