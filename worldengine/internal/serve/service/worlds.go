package service

import (
	"cmp"
	"context"
	"errors"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Errors of the verbs about worlds.
var (
	// ErrUnknownWorld means that there is no such world. List the worlds, or create it.
	ErrUnknownWorld = errors.New("service: there is no such world")
	// ErrWorldExists means that a world has the name. Use it, or choose another name.
	ErrWorldExists = errors.New("service: there is a world of this name already")
	// ErrWorldInUse means that requests of the world are unanswered, or its plugins are connected. Stop them, or
	// force the removal.
	ErrWorldInUse = errors.New("service: the world is in use")
	// ErrWorldNotServed means that no server serves the world, or this one may not. The text says why.
	ErrWorldNotServed = errors.New("service: the world is not served")
)

// WorldManager are the worlds of a NATS. Its methods are safe for concurrent use.
type WorldManager interface {
	// List returns a page of the worlds for which may returns true. Their figures are left out unless
	// figures is set.
	List(ctx context.Context, page messages.WorldsList, may func(world string) bool, figures bool,
	) (messages.Worlds, error)
	// Create makes a world and starts to serve it. The error is ErrWorldExists or ErrWorldNotServed.
	Create(ctx context.Context, request messages.WorldsCreate) (messages.WorldCreated, error)
	// Remove deletes a world. The error is ErrUnknownWorld, ErrWorldInUse or ErrWorldNotServed.
	Remove(ctx context.Context, request messages.WorldsRemove) error
}

// OpenWorlds begins to answer the verbs about worlds. Servers of one NATS share the requests.
func (s *Service) OpenWorlds(worlds WorldManager) (*World, error) {
	return s.Open(WorldConfig{World: wire.WorldsToken, Worlds: worlds, QueueGroup: wire.WorldsToken})
}

// worldsOfNATS returns the World that answers the verbs about worlds; nil if there is none.
func (s *Service) worldsOfNATS() *World {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.worlds[wire.WorldsToken]
}

const (
	// worldsWorkers is how many requests of each verb about worlds are worked on side by side.
	worldsWorkers = 2
	// defaultWorlds is the number of worlds in a page.
	defaultWorlds = 50
)

func (s *Service) worldsEndpoints() []*endpoint {
	return []*endpoint{
		direct(s, wire.WorldsList, (*World).worldsList),
		direct(s, wire.WorldsCreate, (*World).worldsCreate),
		direct(s, wire.WorldsRemove, (*World).worldsRemove),
	}
}

// worldsList answers with the worlds that the user may use.
func (w *World) worldsList(in *incoming, r *messages.WorldsList) (messages.Worlds, error) {
	r.Limit = cmp.Or(r.Limit, defaultWorlds)
	figures := in.rights.CheckReadWorld() == nil
	page, err := w.config.Worlds.List(w.ctx, *r,
		func(world string) bool { return in.rights.World(world) == nil }, figures)
	if !figures || in.rights.CheckVerb(wire.AlertList) != nil { // as in world.status
		for i := range page.Worlds {
			listed := &page.Worlds[i]
			listed.Alerts, listed.Writer = nil, nil
			if listed.Why != "" {
				listed.Why = "an operator of this NATS knows why: handoffctl world list"
			}
		}
	}
	return page, err
}

func (w *World) worldsCreate(
	in *incoming, r *messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	if err := in.rights.World(r.World); err != nil {
		return made, err
	}
	w.config.Logger.Info("audit: a world is created", "world", r.World, "by", in.rights.Sender())
	return w.config.Worlds.Create(w.ctx, *r)
}

func (w *World) worldsRemove(
	in *incoming, r *messages.WorldsRemove,
) (removed messages.WorldRemoved, err error) {
	if err := in.rights.World(r.World); err != nil {
		return removed, err
	}
	w.config.Logger.Info("audit: a world is removed", "world", r.World, "by", in.rights.Sender(),
		"force", r.Force)
	return messages.WorldRemoved{World: r.World}, w.config.Worlds.Remove(w.ctx, *r)
}
