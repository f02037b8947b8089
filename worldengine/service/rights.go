package service

import (
	"github.com/nats-io/nats.go/micro"

	"worldengine/handoff"
	"worldengine/worldengine/access"
)

// rightsOf returns the rights of whoever made a request.
func (s *Service) rightsOf(r micro.Request) access.Rights { return s.config.Access.Of(r.Headers()) }

// mayHandOff refuses a handoff about a town or of an actor that its sender may not speak for.
func mayHandOff(rights access.Rights, h *handoff.Handoff) error {
	if err := rights.Town(h.Proposal.TownID); err != nil {
		return err
	}
	return rights.Actor(h.Proposal.ActorID)
}
