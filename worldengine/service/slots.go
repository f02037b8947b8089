package service

import (
	"sync/atomic"

	"worldengine/worldengine/queue"
)

// What a client is asked to pause at most, and how long the requests before its own are taken to
// need: those of a town one after another, those of a world side by side.
const (
	longestPause = 1000 // milliseconds
	pauseStep    = 50   // milliseconds; a pause is a multiple of it
	perOfTown    = 2    // milliseconds per request that waits for the same town
	ofWorldPerMs = 4    // requests of a world per millisecond
)

// pauseFor returns the pause in milliseconds that a client is asked to make: about as long as the
// requests before its own take, so that it comes back when there is room.
func pauseFor(load queue.Load) int {
	pause := max(load.Town*perOfTown, load.All/ofWorldPerMs)
	pause = (pause + pauseStep - 1) / pauseStep * pauseStep
	return min(max(pause, pauseStep), longestPause)
}

// heldBytes bounds the memory of all requests that are between their arrival and their answer. It
// is safe for concurrent use.
type heldBytes struct {
	bound int64
	held  atomic.Int64
}

// forSmall is the bound for the requests of verbs that read, and for signals: an eighth more, so
// that the handoffs that wait for a game keep no operator from looking and cancelling.
func (h *heldBytes) forSmall() int64 { return h.bound + h.bound/8 }

// take takes bytes and reports whether they fit below a bound; bytes that do not fit are not taken.
func (h *heldBytes) take(bytes, bound int64) bool {
	for {
		held := h.held.Load()
		if held+bytes > bound {
			return false
		}
		if h.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

// slot is what one request has of the slots and of the bytes, from its arrival to its answer.
type slot struct {
	of       *queue.Slots
	held     *heldBytes
	town     string
	bytes    int64
	released atomic.Bool
}

// release gives both back. Further calls do nothing.
func (s *slot) release() {
	if s.released.CompareAndSwap(false, true) {
		s.of.Release(s.town)
		s.held.held.Add(-s.bytes)
	}
}
