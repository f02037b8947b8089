package game

import (
	"sync"

	"worldengine/worldengine/apply"
)

// Gate records the requests for a command, and blocks more of them: the sender passes it before
// each request, and a cancellation closes it meanwhile. The zero gate is open. It is safe for
// concurrent use.
type Gate struct {
	mu sync.Mutex
	// asking reports that a request is out with unknown fate, reached that one may have arrived,
	// and closed counts those who keep the gate closed.
	asking, reached bool
	closed          int
}

// Pass reports whether a request may be sent, and then counts it as out.
func (g *Gate) Pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking = g.asking || g.closed == 0
	return g.closed == 0
}

// Missed records that the request that is out reached no subscriber.
func (g *Gate) Missed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking = false
}

// Reached records that a request may have arrived.
func (g *Gate) Reached() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reached = true
}

// Arrival returns whether a request may have arrived, as far as is known.
func (g *Gate) Arrival() apply.Arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.reached:
		return apply.MayHaveArrived
	case g.asking:
		return apply.MayArrive
	}
	return apply.NotArrived
}

// Close stops further requests until Open is called as often as Close.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed++
}

// Open takes one Close back.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed--
}

// IsOpen reports whether requests may pass.
func (g *Gate) IsOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed == 0
}
