package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/store/worldsettings"
)

// registry has the hosted worlds by name. Its zero value is empty; it is safe for concurrent use.
type registry struct {
	mu     sync.RWMutex
	hosted map[string]*hosted
	closed bool // no world is added any more
}

// add adds a world. It returns false if the registry has a world of that name, or is closed.
func (r *registry) add(h *hosted) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.hosted[h.world] != nil {
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
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	all := r.all()
	failures := make([]error, len(all))
	var closing sync.WaitGroup
	for i, h := range all {
		closing.Go(func() { failures[i] = h.close(ctx) })
	}
	closing.Wait()
	return errors.Join(failures...)
}

// remove removes a world, unless another one has taken its name.
func (r *registry) remove(h *hosted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hosted[h.world] == h {
		delete(r.hosted, h.world)
	}
}

// firstStartTimeout bounds how long the start of a server waits for the first start of each of several
// worlds. A world that takes longer is started in the background.
const firstStartTimeout = 10 * time.Second

// serveWorlds starts the worlds. If there is only one, its failure is returned.
func (s *Server) serveWorlds(ctx context.Context) error {
	if !s.config.several() {
		return s.config.noStreamsError(s.only().serveOrStandBy(ctx))
	}
	if err := s.watchWorlds(ctx); err != nil {
		return s.config.noStreamsError(err)
	}
	patience := time.After(firstStartTimeout)
	for _, h := range s.worlds.all() {
		if h.named {
			h.ended.Go(h.run)
		}
	}
	for _, h := range s.worlds.all() {
		select {
		case <-h.decided:
		case <-patience:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// host starts to serve, or to stand by for, a world that was found or is to be made. It returns nil if
// the server has the world already, or is stopping. created says that a request has asked for the
// world.
func (s *Server) host(
	world string, settings worldsettings.Settings, created bool,
) (*hosted, error) {
	h, err := newHosted(s, world)
	if err != nil {
		return nil, err
	}
	h.settings, h.created = settings, created
	if !s.worlds.add(h) {
		_ = h.close(context.Background()) // it has only its parts yet
		return nil, nil
	}
	h.ended.Go(h.run)
	return h, nil
}

// forget makes the server host a world no longer, which still has to be closed.
func (s *Server) forget(h *hosted) {
	s.worlds.remove(h)
	if s.models != nil {
		s.models.Forget(h.world)
	}
	if s.placer != nil {
		s.placer.Remove(h.world)
	}
}

// drop ends a world that is not there any more.
func (s *Server) drop(h *hosted) {
	s.forget(h)
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	if err := h.close(ctx); err != nil {
		h.logger.Warn("a world that was removed did not end cleanly", "error", err)
	}
	if s.metrics != nil {
		s.metrics.Remove(h.world)
	}
	s.noteChange()
}

// only returns the world of a server of one world, the first one of a server of several; nil if there
// is none.
func (s *Server) only() *hosted { return s.worlds.get(s.config.Engine.World) }

// Worlds returns the names of the worlds that the server serves or stands by for, in their order.
func (s *Server) Worlds() (names []string) {
	for _, h := range s.worlds.all() {
		names = append(names, h.world)
	}
	return names
}

// Serving reports whether the server answers requests to one of its worlds. Otherwise it stands by, or
// ends.
func (s *Server) Serving() bool {
	return slices.ContainsFunc(s.worlds.all(), func(h *hosted) bool { return h.serving.Load() != nil })
}

// Engine returns the engine of the only world; nil while the server does not serve it.
func (s *Server) Engine() *engine.Engine { return s.EngineOf(s.config.Engine.World) }

// EngineOf returns the engine of a world; nil while the server does not serve the world.
func (s *Server) EngineOf(world string) *engine.Engine {
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
