package game

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// applications are this writer's commands, at most one for a town, and the clients that wait for
// their answers. The zero value is empty. It is safe for concurrent use.
type applications struct {
	mu     sync.Mutex
	towns  map[string]*application
	closed bool
	work   sync.WaitGroup
}

// runOf returns the run of the handoff with that key which is being applied to the town, "" if none
// is.
func (s *applications) runOf(townID, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.towns[townID]; ok && a.Handoff.IdempotencyKey == key {
		return a.runID
	}
	return ""
}

// of returns a run's application in a town, or with "" in any; nil if there is none.
func (s *applications) of(townID, runID string) *application {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.towns[townID]; a != nil && (runID == "" || a.runID == runID) {
		return a
	}
	return nil
}

// join reports whether a run has an application; if so, the clients get its answer.
func (s *applications) join(townID, runID string, clients ...answering) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil || a.runID != runID {
		return false
	}
	a.clients = append(a.clients, clients...)
	return true
}

// add adds and starts an application, and reports whether any more are accepted. If there is one of
// the same run, that one gets the clients; one of another run is over, and is replaced.
func (s *applications) add(a *application, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if known := s.towns[a.town]; known != nil && known.runID == a.runID {
		known.clients = append(known.clients, a.clients...)
		return true
	}
	if s.towns == nil {
		s.towns = map[string]*application{}
	}
	s.towns[a.town] = a
	s.work.Go(start)
	return true
}

// remove ends an application and returns its waiting clients.
func (s *applications) remove(a *application) []answering {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.towns[a.town] == a {
		delete(s.towns, a.town)
	}
	return a.takeClients()
}

// takeClients returns an application's waiting clients, once.
func (s *applications) takeClients(a *application) []answering {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.takeClients()
}

// takeClients is for applications, whose lock guards the clients.
func (a *application) takeClients() []answering {
	clients := a.clients
	a.clients = nil
	return clients
}

// count returns how many applications there are.
func (s *applications) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// all returns the applications in the order of their towns.
func (s *applications) all() []*application {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*application, 0, len(s.towns))
	for _, a := range s.towns {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *application) int { return cmp.Compare(a.town, b.town) })
	return all
}

// stopGrace is how long stop waits for games that are about to answer. Commands without an answer
// then stay pending; the next writer of the world goes on with them.
const stopGrace = 2 * time.Second

// close takes no more applications.
func (s *applications) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// stop refuses new applications, and ends those in hand, with cancel after a grace.
func (s *applications) stop(ctx context.Context, cancel context.CancelFunc) {
	s.close()
	grace, done := context.WithTimeout(ctx, stopGrace)
	defer done()
	context.AfterFunc(grace, cancel)
	s.work.Wait()
	cancel()
}
