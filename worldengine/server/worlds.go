package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"worldengine/worldengine"
)

// registry has the hosted worlds by name. Its zero value is empty; it is safe for concurrent use.
type registry struct {
	mu     sync.RWMutex
	hosted map[string]*hosted
}

// add adds a world. It returns false if the registry has a world of that name.
func (r *registry) add(h *hosted) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosted[h.world] != nil {
		return false
	}
	if r.hosted == nil {
		r.hosted = map[string]*hosted{}
	}
	r.hosted[h.world] = h
	return true
}

// get returns a world; nil if the registry does not have it.
func (r *registry) get(world string) *hosted {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.hosted[world]
}

// all returns the worlds in the order of their names.
func (r *registry) all() []*hosted {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*hosted, 0, len(r.hosted))
	for _, world := range slices.Sorted(maps.Keys(r.hosted)) {
		all = append(all, r.hosted[world])
	}
	return all
}

// close closes all worlds side by side.
func (r *registry) close(ctx context.Context) error {
	all := r.all()
	failures := make([]error, len(all))
	var closing sync.WaitGroup
	for i, h := range all {
		closing.Go(func() { failures[i] = h.close(ctx) })
	}
	closing.Wait()
	return errors.Join(failures...)
}

// only returns the world of a server of one world.
func (s *Server) only() *hosted { return s.worlds.get(s.config.Engine.World) }

// Worlds returns the names of the worlds that the server serves or stands by for, in their order.
func (s *Server) Worlds() (names []string) {
	for _, h := range s.worlds.all() {
		names = append(names, h.world)
	}
	return names
}

// Serving reports whether the server answers requests. Otherwise it stands by, or ends.
func (s *Server) Serving() bool { return s.Engine() != nil }

// Engine returns the engine of the only world; nil while the server stands by.
func (s *Server) Engine() *worldengine.Engine { return s.EngineOf(s.config.Engine.World) }

// EngineOf returns the engine of a world; nil while the server does not serve the world.
func (s *Server) EngineOf(world string) *worldengine.Engine {
	if h := s.worlds.get(world); h != nil {
		if t := h.serving.Load(); t != nil {
			return t.engine
		}
	}
	return nil
}

// Created returns how many towns of the world file were created when the server began to serve its
// only world.
func (s *Server) Created() int { return s.CreatedIn(s.config.Engine.World) }

// CreatedIn returns how many towns of its file were created when the server began to serve a world.
func (s *Server) CreatedIn(world string) int {
	if h := s.worlds.get(world); h != nil {
		if t := h.serving.Load(); t != nil {
			return t.created
		}
	}
	return 0
}

// Changed returns a channel that gets an element after each change of the worlds that are served, since
// Start. Changes that are not read yet share one element.
func (s *Server) Changed() <-chan struct{} { return s.changed }

func (s *Server) noteChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// several reports whether the server may serve more than one world.
func (c *Config) several() bool { return false }
