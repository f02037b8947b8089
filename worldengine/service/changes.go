package service

import (
	"cmp"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/town"
)

// takePut returns the handler of town.put: a worker parses it and leaves it to the engine, and the
// answer goes out when the town is stored.
func (s *Service) takePut() func(*incoming) {
	return s.takeChange(changeWeight, func(
		data []byte, limits schemas.Limits, rights access.Rights,
		done func(worldengine.Town, error),
	) error {
		p, err := parsePut(data, limits)
		if err != nil {
			return err
		}
		if err := rights.Town(p.state.Snapshot.TownID); err != nil {
			return err
		}
		if err := mayGovern(rights, p.attributes); err != nil {
			return err
		}
		return s.engine.SubmitPut(p.state, p.expected, p.attributes, s.actorOf(rights), done)
	})
}

// takePatch returns the handler of town.patch, which works as that of town.put.
func (s *Service) takePatch() func(*incoming) {
	return s.takeChange(patchWeight, func(
		data []byte, limits schemas.Limits, rights access.Rights,
		done func(worldengine.Town, error),
	) error {
		tree, err := schemas.Parse(schemas.TownPatchRequest, data, limits)
		if err != nil {
			return err
		}
		request := tree.(map[string]any)
		townID := request["townId"].(string)
		if err := rights.Town(townID); err != nil {
			return err
		}
		attributes := attributesOf(request)
		if err := mayGovern(rights, attributes); err != nil {
			return err
		}
		return s.engine.SubmitPatch(townID, request["patch"],
			request["expectedSnapshotHash"].(string), attributes, s.actorOf(rights), done)
	})
}

// actorOf returns who changes a town or appends events: the user or, if NATS does not name it, its
// role; "" without access control.
func (s *Service) actorOf(rights access.Rights) string {
	id := rights.Identity(s.config.Access)
	return cmp.Or(id.User, string(id.Role))
}

// submitChange parses a request that changes a town, and submits it to the engine, which calls
// done.
type submitChange func(
	data []byte, limits schemas.Limits, rights access.Rights, done func(worldengine.Town, error),
) error

// takeChange returns the handler of a verb that changes a town's state. A byte of its requests
// counts for weight bytes of Config.MaxHeld.
func (s *Service) takeChange(weight int64, submit submitChange) func(*incoming) {
	p := s.addPool(s.changes, s.parsers())
	return func(r *incoming) {
		to, data, rights := r.reply, r.data, r.rights
		if len(data) > s.config.MaxSnapshot {
			s.failOnArrival(to, tooLarge(len(data), s.config.MaxSnapshot))
			return
		}
		bytes := requestBytes + weight*int64(len(data))
		held := s.admit(r, p.slots, s.townOf(rights, data), bytes)
		s.enqueue(p, held, to, func() error {
			limits := schemas.Limits{Bytes: s.config.MaxSnapshot}
			return submit(data, limits, rights, func(t worldengine.Town, err error) {
				s.answerTown(held, to, t, err)
			})
		})
	}
}

func (s *Service) answerTown(held *slot, to replyTo, t worldengine.Town, err error) {
	s.finish(held, to, func() (*nats.Msg, error) {
		if err != nil {
			return nil, err
		}
		body, err := townReplyOf(t)
		return &nats.Msg{Data: body}, err
	})
}

// put is a town.put that was parsed.
type put struct {
	state    town.State
	expected string

	attributes worldengine.Attributes
}

// attributesOf returns what a request says of a town beside its state.
func attributesOf(request map[string]any) worldengine.Attributes {
	binding, _ := request["apply"].(string)
	return worldengine.Attributes{
		Apply: apply.Binding(binding), Approval: approval.FromTree(request["approval"]),
	}
}

// mayGovern returns nil, or why a request may not set what it sets of a town beside its state.
func mayGovern(rights access.Rights, a worldengine.Attributes) error {
	switch {
	case a.Approval != nil:
		return rights.Govern("approval")
	case a.Apply != "":
		return rights.Govern("apply")
	}
	return nil
}

func parsePut(data []byte, limits schemas.Limits) (put, error) {
	tree, err := schemas.Parse(schemas.TownPutRequest, data, limits)
	if err != nil {
		return put{}, err
	}
	request := tree.(map[string]any)
	state, err := town.FromTree(request["snapshot"])
	if err != nil {
		return put{}, schemas.Under(schemas.TownPutRequest, err, "snapshot")
	}
	expected, _ := request["expectedSnapshotHash"].(string)
	return put{state, expected, attributesOf(request)}, nil
}
