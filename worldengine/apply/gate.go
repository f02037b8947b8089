package apply

import "sync"

// Gate is what one server knows of the requests that it has sent for a command, and the way to stop
// more of them: who applies the command passes it before each request, and a cancellation closes it
// unless a request may have arrived. The zero gate is open. It is safe for concurrent use.
type Gate struct {
	mu sync.Mutex
	// asking reports that a request is out whose fate is not known yet, reached that one may have
	// arrived, and closed that no further one may be sent.
	asking, reached, closed bool
	closings                int
}

// Arrival is whether a request of a server may have reached a game. The set is closed.
type Arrival int

const (
	// NotArrived: none has, and none will, since the gate is closed.
	NotArrived Arrival = iota
	// MayArrive: a request is out, and what became of it shows soon.
	MayArrive
	// MayHaveArrived: one may have.
	MayHaveArrived
)

// Pass reports whether a request may be sent, which then counts as one that is out.
func (g *Gate) Pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking = g.asking || !g.closed
	return !g.closed
}

// Missed reports to the gate that the request that is out reached no subscriber.
func (g *Gate) Missed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking = false
}

// Reached says that a request may have arrived.
func (g *Gate) Reached() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reached = true
}

// MayHaveArrived reports whether a request may have arrived, as far as it is known by now.
func (g *Gate) MayHaveArrived() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reached
}

// Close lets no further request pass where none can have arrived, and reports that.
func (g *Gate) Close() Arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.reached:
		return MayHaveArrived
	case g.asking:
		return MayArrive
	}
	g.shut()
	return NotArrived
}

// Shut lets no further request pass, whatever has arrived.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut()
}

func (g *Gate) shut() {
	g.closed = true
	g.closings++
}

// Closings returns how often the gate was closed.
func (g *Gate) Closings() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closings
}

// Open lets requests pass again, where the gate was closed so often and not once more since: what
// its caller has read of the log may be older than that. It reports whether the gate is open.
func (g *Gate) Open(closings int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = g.closed && g.closings != closings
	return !g.closed
}
