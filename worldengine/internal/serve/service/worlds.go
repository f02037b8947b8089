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

// OpenWorlds begins to answer the verbs about worlds, until Stop. It is called once. Servers of one NATS share the
// requests.
func (s *Service) OpenWorlds(manager WorldManager) error {
	s.manager = manager
	return s.newAddressee(wire.WorldsToken, wire.WorldsToken, s.config.Logger).open()
}

// worldsOfNATS returns the addressee of the verbs about worlds; nil if there is none.
func (s *Service) worldsOfNATS() *addressee {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.addressees[wire.WorldsToken]
}

const (
	// worldsWorkers is how many requests of each verb about worlds are worked on side by side.
	worldsWorkers = 2
	// defaultWorlds is the number of worlds in a page.
	defaultWorlds = 50
)

func (s *Service) worldsEndpoints() []*endpoint {
	return []*endpoint{
		manages(s, wire.WorldsList, (*Service).worldsList),
		manages(s, wire.WorldsCreate, (*Service).worldsCreate),
		manages(s, wire.WorldsRemove, (*Service).worldsRemove),
	}
}

// manages is direct for a verb about worlds.
func manages[Q, A any](
	s *Service, verb wire.Verb, answer func(*Service, *incoming, *Q) (A, error),
) *endpoint {
	do := parsed(answer)
	return s.directEndpoint(verb, func(in *incoming) (any, error) { return do(s, in) })
}

// worldsList answers with the worlds that the user may use.
func (s *Service) worldsList(in *incoming, r *messages.WorldsList) (messages.Worlds, error) {
	r.Limit = cmp.Or(r.Limit, defaultWorlds)
	figures := in.rights.CheckReadWorld() == nil
	page, err := s.manager.List(in.addressee.ctx, *r,
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

func (s *Service) worldsCreate(
	in *incoming, r *messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	if err := in.rights.World(r.World); err != nil {
		return made, err
	}
	s.config.Logger.Info("audit: a world is created", "world", r.World, "by", in.rights.Sender())
	return s.manager.Create(in.addressee.ctx, *r)
}

func (s *Service) worldsRemove(
	in *incoming, r *messages.WorldsRemove,
) (removed messages.WorldRemoved, err error) {
	if err := in.rights.World(r.World); err != nil {
		return removed, err
	}
	s.config.Logger.Info("audit: a world is removed", "world", r.World, "by", in.rights.Sender(),
		"force", r.Force)
	return messages.WorldRemoved{World: r.World}, s.manager.Remove(in.addressee.ctx, *r)
}
