package service

import (
	"cmp"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// maxAppend is the largest run.append in bytes that is read.
const maxAppend = 1 << 20

func (s *Service) changeEndpoints() []*endpoint {
	return []*endpoint{
		s.submits(wire.TownPut, s.townPut, s.config.MaxSnapshot, changeWeight),
		s.submits(wire.TownPatch, s.townPatch, s.config.MaxSnapshot, patchWeight),
		s.submits(wire.TownRemove, s.townRemove, maxRequest, changeWeight),
		s.submits(wire.RunAppend, s.runAppend, maxAppend, changeWeight),
	}
}

// townPut leaves a town's state to the engine.
func (s *Service) townPut(in *incoming) error {
	request, err := s.parseChange(in)
	if err != nil {
		return err
	}
	state, err := town.FromTree(request["snapshot"])
	if err != nil {
		return schemas.Under(schemas.TownPutRequest, err, "snapshot")
	}
	attributes, err := attributesFor(in.rights, state.Snapshot.TownID, request)
	if err != nil {
		return err
	}
	expected, _ := request["expectedSnapshotHash"].(string)
	return s.engine.SubmitPut(worldengine.Put{
		State: state, Expected: expected, Attributes: attributes, ActorID: s.actorOf(in.rights),
	}, s.answerTown(in))
}

// townPatch leaves a patch of a town's state to the engine.
func (s *Service) townPatch(in *incoming) error {
	request, err := s.parseChange(in)
	if err != nil {
		return err
	}
	townID, expected := request["townId"].(string), request["expectedSnapshotHash"].(string)
	attributes, err := attributesFor(in.rights, townID, request)
	if err != nil {
		return err
	}
	return s.engine.SubmitPatch(townID, worldengine.Patch{
		Patch: request["patch"], Expected: expected, Attributes: attributes,
		ActorID: s.actorOf(in.rights),
	}, s.answerTown(in))
}

// parseChange returns the tree of a request: the engine reads the state or the patch in it.
func (s *Service) parseChange(in *incoming) (map[string]any, error) {
	tree, err := schemas.Parse(schemas.RequestOf(string(in.verb)), in.data,
		schemas.Limits{Bytes: s.config.MaxSnapshot})
	request, _ := tree.(map[string]any)
	return request, err
}

// attributesFor returns the members of a request that are about a town beside its state. It refuses
// a request that its sender may not make.
func attributesFor(
	rights access.Rights, townID string, request map[string]any,
) (worldengine.Attributes, error) {
	binding, _ := request["apply"].(string)
	a := worldengine.Attributes{
		Apply: apply.Binding(binding), Approval: approval.FromTree(request["approval"]),
	}
	err := rights.Town(townID)
	switch {
	case err != nil:
	case a.Approval != nil:
		err = rights.Govern("approval")
	case a.Apply != "":
		err = rights.Govern("apply")
	}
	return a, err
}

// actorOf returns the name in which a request changes something.
func (s *Service) actorOf(rights access.Rights) string { return rights.Sender(s.config.Access) }

// answering is the client of a request whose answer is made of a T.
type answering[T any] struct {
	*Service
	in    *incoming
	reply func(T) any
}

// Answer implements queue.Client.
func (c answering[T]) Answer(v T, err error) {
	c.finish(c.in, err, func() (any, error) { return c.reply(v), nil })
}

// answerTown returns a client that answers with the town that was changed.
func (s *Service) answerTown(in *incoming) answering[worldengine.Town] {
	return answering[worldengine.Town]{s, in, func(t worldengine.Town) any { return townOf(t) }}
}

// townRemove leaves the removal of a town to the engine.
func (s *Service) townRemove(in *incoming) error {
	var r messages.TownRemove
	if err := parse(in.verb, in.data, &r); err != nil {
		return err
	}
	if err := in.rights.Town(r.TownID); err != nil {
		return err
	}
	removed := func(t worldengine.Town) any {
		return messages.TownSummary{
			TownID: r.TownID, SnapshotHash: t.State.Hash, DecisionEpoch: t.State.Epoch(),
			Revision: t.Revision,
		}
	}
	return s.engine.SubmitRemove(r.TownID, s.actorOf(in.rights),
		answering[worldengine.Town]{s, in, removed})
}

// runAppend leaves run events to the engine.
func (s *Service) runAppend(in *incoming) error {
	townID, writes, err := runevents.ParseAppend(in.data, schemas.Limits{Bytes: maxAppend})
	if err != nil {
		return err
	}
	if err := cmp.Or(in.rights.Town(townID), in.rights.Read(townID)); err != nil {
		return err
	}
	from := runs.Sender{
		Name: cmp.Or(s.actorOf(in.rights), runs.Anyone), MayRead: in.rights.ReadToken,
	}
	reply := func(appended []runevents.Appended) any {
		return struct {
			Appended []runevents.Appended `json:"appended"`
		}{appended}
	}
	return s.engine.Runs().Submit(from, townID, writes,
		answering[[]runevents.Appended]{s, in, reply})
}
