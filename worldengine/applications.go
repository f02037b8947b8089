package worldengine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"worldengine/worldengine/backoff"
)

// applications are the applications that this instance sees to, one a town at most.
type applications struct {
	mu     sync.Mutex
	towns  map[string]*application
	closed bool
	work   sync.WaitGroup
	// unread lets one of the warnings through that a command waits since its town cannot be read.
	unread backoff.Seldom
}

// has reports whether a handoff with that key is being applied to the town.
func (s *applications) has(townID, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	return a != nil && a.Handoff.IdempotencyKey == key
}

// join reports whether this instance works on a run; then done, unless it is nil, gets its answer.
func (s *applications) join(townID, runID string, done func(Answer, error)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil || a.runID != runID {
		return false
	}
	if done != nil {
		a.waiting = append(a.waiting, done)
	}
	return true
}

// add takes an application in and starts it; where there is one of the same run, that one gets the
// waiting clients. It takes the place of one that another instance has concluded. It returns false
// when no more are taken.
func (s *applications) add(a *application, start func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if known := s.towns[a.town]; known != nil && known.runID == a.runID {
		known.waiting = append(known.waiting, a.waiting...)
		return true
	}
	if s.towns == nil {
		s.towns = map[string]*application{}
	}
	s.towns[a.town] = a
	s.work.Go(start)
	return true
}

// remove ends an application and returns the clients that wait for its answer.
func (s *applications) remove(a *application) []func(Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.towns[a.town] == a {
		delete(s.towns, a.town)
	}
	return a.takeWaiting()
}

// takeWaiting returns the clients that wait for the answer of a, once.
func (s *applications) takeWaiting(a *application) []func(Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.takeWaiting()
}

func (a *application) takeWaiting() []func(Answer, error) {
	waiting := a.waiting
	a.waiting = nil
	return waiting
}

func (s *applications) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// applyGrace is how long Close waits for plugins that are about to answer. What is not answered then
// stays pending; the server that serves the world next goes on with it.
const applyGrace = 2 * time.Second

// stop takes no more applications, and ends those in hand.
func (s *applications) stop(ctx context.Context, cancel context.CancelFunc) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	grace, done := context.WithTimeout(ctx, applyGrace)
	defer done()
	context.AfterFunc(grace, cancel)
	s.work.Wait()
	cancel()
}

// due returns the applications to look at, in the order of their towns: those whose time has come, and all
// that a new word about the pause of the world concerns.
func (s *applications) due(now time.Time, world uint64) (due []*application) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.towns {
		if a.look.world != world || !now.Before(a.look.next) {
			due = append(due, a)
		}
	}
	slices.SortFunc(due, func(a, b *application) int { return cmp.Compare(a.town, b.town) })
	return due
}
