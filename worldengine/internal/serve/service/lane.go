package service

import "sync"

// lane queues the requests of several worlds for its workers. The worlds take turns, so that a busy
// world does not delay the requests of the others. The requests of one world go in the order of
// their arrival. The slots bound how many wait in a lane. It is safe for concurrent use.
type lane struct {
	mu      sync.Mutex
	arrived sync.Cond
	waiting map[*addressee][]*incoming // never empty
	turns   []*addressee               // those with waiting requests, next one first
	closed  bool
}

func newLane() *lane {
	l := &lane{waiting: map[*addressee][]*incoming{}}
	l.arrived.L = &l.mu
	return l
}

func (l *lane) put(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting[in.addressee]) == 0 {
		l.turns = append(l.turns, in.addressee)
	}
	l.waiting[in.addressee] = append(l.waiting[in.addressee], in)
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
	next := l.turns[0]
	l.turns = l.turns[1:]
	in, rest := l.waiting[next][0], l.waiting[next][1:]
	if len(rest) == 0 {
		delete(l.waiting, next)
		return in
	}
	l.waiting[next] = rest
	l.turns = append(l.turns, next)
	return in
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.arrived.Broadcast()
}
