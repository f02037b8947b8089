package service

import "sync"

// lane queues the requests of several worlds for its workers. The worlds take turns, so that a busy
// world does not delay the requests of the others. The requests of one world go in the order of
// their arrival. The slots bound how many wait in a lane. It is safe for concurrent use.
type lane struct {
	mu      sync.Mutex
	arrived sync.Cond
	waiting map[*World][]*incoming // never empty
	turns   []*World               // those with waiting requests, next one first
	closed  bool
}

func newLane() *lane {
	l := &lane{waiting: map[*World][]*incoming{}}
	l.arrived.L = &l.mu
	return l
}

func (l *lane) put(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting[in.world]) == 0 {
		l.turns = append(l.turns, in.world)
	}
	l.waiting[in.world] = append(l.waiting[in.world], in)
	l.arrived.Signal()
}

// next waits for the next request. It returns nil once the lane is closed and empty.
func (l *lane) next() *incoming {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.turns) == 0 {
		if l.closed {
			return nil
		}
		l.arrived.Wait()
	}
	world := l.turns[0]
	l.turns = l.turns[1:]
	in, rest := l.waiting[world][0], l.waiting[world][1:]
	if len(rest) == 0 {
		delete(l.waiting, world)
		return in
	}
	l.waiting[world] = rest
	l.turns = append(l.turns, world)
	return in
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.arrived.Broadcast()
}
