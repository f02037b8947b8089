package apply

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Member is an application of a Set, and the clients that wait for its answer.
type Member[W any] struct {
	Identity
	Key     string // the idempotency key of the handoff
	waiting []W    // behind the lock of the set
}

// NewMember returns an application for whose answer clients wait.
func NewMember[W any](of Identity, key string, waiting ...W) Member[W] {
	return Member[W]{Identity: of, Key: key, waiting: waiting}
}

// InSet returns what a Set knows of the application that m is embedded in.
func (m *Member[W]) InSet() *Member[W] { return m }

// take returns the clients that wait, once.
func (m *Member[W]) take() []W {
	waiting := m.waiting
	m.waiting = nil
	return waiting
}

// Set holds the applications that an instance works on, one a town at most: A is a pointer to an
// application that embeds a Member, W is what answers a client. The zero value is empty. It is safe
// for concurrent use.
type Set[A interface {
	comparable
	InSet() *Member[W]
}, W any] struct {
	mu     sync.Mutex
	towns  map[string]A
	closed bool
	work   sync.WaitGroup
}

// RunOf returns the run of the handoff with that key which is being applied to the town, "" where
// none is.
func (s *Set[A, W]) RunOf(townID, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.towns[townID]; ok && a.InSet().Key == key {
		return a.InSet().RunID
	}
	return ""
}

// Of returns the application of a run of a town, and whether there is one.
func (s *Set[A, W]) Of(townID, runID string) (a A, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok = s.towns[townID]; !ok || a.InSet().RunID != runID {
		return *new(A), false
	}
	return a, true
}

// Join reports whether there is an application of a run; then the clients get its answer.
func (s *Set[A, W]) Join(townID, runID string, clients ...W) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.towns[townID]
	if !ok || a.InSet().RunID != runID {
		return false
	}
	a.InSet().waiting = append(a.InSet().waiting, clients...)
	return true
}

// Add takes an application in and starts it; where there is one of the same run, that one gets the
// waiting clients. It takes the place of one that another writer has concluded. It returns false
// when no more are taken.
func (s *Set[A, W]) Add(a A, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	m := a.InSet()
	if known, ok := s.towns[m.TownID]; ok && known.InSet().RunID == m.RunID {
		known.InSet().waiting = append(known.InSet().waiting, m.waiting...)
		return true
	}
	if s.towns == nil {
		s.towns = map[string]A{}
	}
	s.towns[m.TownID] = a
	s.work.Go(start)
	return true
}

// Remove ends an application and returns the clients that wait for its answer.
func (s *Set[A, W]) Remove(a A) []W {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := a.InSet(); s.towns[m.TownID] == a {
		delete(s.towns, m.TownID)
	}
	return a.InSet().take()
}

// TakeWaiting returns the clients that wait for the answer of an application, once.
func (s *Set[A, W]) TakeWaiting(a A) []W {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.InSet().take()
}

// Count returns how many applications there are.
func (s *Set[A, W]) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// All returns the applications in the order of their towns.
func (s *Set[A, W]) All() []A {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]A, 0, len(s.towns))
	for _, a := range s.towns {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b A) int {
		return cmp.Compare(a.InSet().TownID, b.InSet().TownID)
	})
	return all
}

// stopGrace is how long Stop waits for plugins that are about to answer. What is not answered then
// stays pending; the server that serves the world next goes on with it.
const stopGrace = 2 * time.Second

// Close takes no more applications.
func (s *Set[A, W]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Stop takes no more applications, and ends those in hand, with cancel after a grace.
func (s *Set[A, W]) Stop(ctx context.Context, cancel context.CancelFunc) {
	s.Close()
	grace, done := context.WithTimeout(ctx, stopGrace)
	defer done()
	context.AfterFunc(grace, cancel)
	s.work.Wait()
	cancel()
}
