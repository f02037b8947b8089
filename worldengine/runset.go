package worldengine

import "sync"

// runSet remembers the runs that were added last.
type runSet struct {
	mu    sync.Mutex
	known map[string]struct{}
	order []string
}

// maxRunSet bounds a runSet.
const maxRunSet = 4096

func (s *runSet) add(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[runID]; ok {
		return
	}
	if s.known == nil {
		s.known = map[string]struct{}{}
	}
	s.known[runID] = struct{}{}
	if s.order = append(s.order, runID); len(s.order) > maxRunSet {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
}

func (s *runSet) has(runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[runID]
	return ok
}
