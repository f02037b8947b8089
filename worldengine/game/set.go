package game

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// applications are this writer's commands, at most one for a town. The zero value is empty. It is
// safe for concurrent use.
type applications struct {
	mu     sync.Mutex
	towns  map[string]*Application
	closed bool
	work   sync.WaitGroup
}

// of returns a run's application in a town, or with "" in any; nil if there is none.
func (s *applications) of(townID, runID string) *Application {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.towns[townID]; a != nil && (runID == "" || a.RunID == runID) {
		return a
	}
	return nil
}

// add adds and starts an application, in the place of one that is over, and reports whether any more
// are accepted.
func (s *applications) add(a *Application, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.towns == nil {
		s.towns = map[string]*Application{}
	}
	s.towns[a.TownID] = a
	s.work.Go(start)
	return true
}

// remove removes an application, unless another one has its place.
func (s *applications) remove(a *Application) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.towns[a.TownID] == a {
		delete(s.towns, a.TownID)
	}
}

// all returns the applications in the order of their towns.
func (s *applications) all() []*Application {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Application, 0, len(s.towns))
	for _, a := range s.towns {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *Application) int { return cmp.Compare(a.TownID, b.TownID) })
	return all
}

// count returns how many applications there are.
func (s *applications) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// close accepts no more applications.
func (s *applications) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// stopGrace is how long stop waits for games that are about to answer. Commands without an answer
// then stay pending; the next writer of the world goes on with them.
const stopGrace = 2 * time.Second

// stop accepts no more applications, and ends those in hand, with cancel after a grace.
func (s *applications) stop(ctx context.Context, cancel context.CancelFunc) {
	s.close()
	grace, done := context.WithTimeout(ctx, stopGrace)
	defer done()
	context.AfterFunc(grace, cancel)
	s.work.Wait()
	cancel()
}
