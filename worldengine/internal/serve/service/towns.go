package service

import (
	"cmp"

	"github.com/go-json-experiment/json"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/store/history"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Default numbers of rows in a page about towns.
const (
	defaultTowns     = 10_000
	defaultRevisions = 100
)

func (s *Service) townEndpoints() []*endpoint {
	return []*endpoint{
		direct(s, wire.TownGet, (*ServedWorld).townGet),
		direct(s, wire.TownHistory, (*ServedWorld).townHistory),
		direct(s, wire.MemoryGet, (*ServedWorld).memoryGet),
		direct(s, wire.TownList, (*ServedWorld).townList),
		s.queuedEndpoint(wire.TownPut, worldHandler((*ServedWorld).townPut), MaxSnapshot, changeWeight),
		s.queuedEndpoint(wire.TownPatch, worldHandler((*ServedWorld).townPatch), MaxSnapshot, patchWeight),
		s.queuedEndpoint(wire.TownRemove, worldHandler(parsed((*ServedWorld).townRemove)), maxRequest, changeWeight),
	}
}

func (w *ServedWorld) townGet(in *incoming, r *messages.TownGet) (reply messages.Town, err error) {
	if err := in.rights.CheckRead(r.TownID); err != nil {
		return reply, err
	}
	if r.Revision > 0 {
		return w.engine.Towns().At(w.ctx, r.TownID, r.Revision)
	}
	return w.engine.Towns().Get(w.ctx, r.TownID)
}

func (w *ServedWorld) townList(in *incoming, r *messages.TownList) (messages.Towns, error) {
	r.Limit = cmp.Or(r.Limit, defaultTowns)
	page, err := w.engine.Towns().List(w.ctx,
		engine.TownQuery{TownList: *r, Allowed: in.rights.Readable()})
	trimPage(&page)
	return page, err
}

// trimPage drops the last towns of a page, so that the page takes at most runs.PageBytes.
func trimPage(page *messages.Towns) {
	const perTown = 512 // a town without its id takes less; a byte of the id takes at most six
	room := runs.PageBytes
	for i := range page.Towns {
		room -= perTown + 6*len(page.Towns[i].TownID)
		if room < 0 && i > 0 {
			page.Towns, page.Next = page.Towns[:i], page.Towns[i-1].TownID
			return
		}
	}
}

func (w *ServedWorld) memoryGet(in *incoming, r *messages.MemoryGet) (*messages.Memory, error) {
	townID := ""
	if r.Scope.TownID != nil {
		townID = *r.Scope.TownID
	}
	towns, err := in.rights.ReadableOf(townID)
	if err != nil {
		return nil, err
	}
	return w.engine.Memory().Read(w.ctx, r.Scope, towns)
}

func (w *ServedWorld) townHistory(
	in *incoming, r *messages.TownHistory,
) (page messages.History, err error) {
	page.TownID, page.Revisions = r.TownID, []messages.Change{}
	limit, room := cmp.Or(r.Limit, defaultRevisions), runs.PageBytes
	// add adds a revision to the page. If the page is full, it returns false, and page.Next is where the next page
	// starts.
	add := func(row messages.Change) bool {
		encoded, err := json.Marshal(row)
		room -= len(encoded) + 1
		if n := len(page.Revisions); n > 0 && (n == limit || room < 0 || err != nil) {
			page.Next = page.Revisions[n-1].Revision.Revision
			return false
		}
		page.Revisions = append(page.Revisions, row)
		return true
	}
	if r.TownID == "" {
		err = w.engine.History().Newest(w.ctx, history.Window{Before: r.Before, After: r.After},
			func(townID string, change messages.Revision) bool {
				return in.rights.CheckRead(townID) != nil ||
					add(messages.Change{TownID: townID, Revision: change})
			})
		return page, err
	}
	if err := in.rights.CheckRead(r.TownID); err != nil {
		return page, err
	}
	err = w.engine.History().Visit(w.ctx, r.TownID, r.Before, func(change messages.Revision) bool {
		return change.Revision > r.After && add(messages.Change{Revision: change})
	})
	return page, err
}

func (w *ServedWorld) townPut(in *incoming) (any, error) {
	request, err := w.parseChange(in)
	if err != nil {
		return nil, err
	}
	state, err := town.ParseTree(request["snapshot"])
	if err != nil {
		return nil, schemas.Nest(schemas.TownPutRequest, err, "snapshot")
	}
	attributes, err := attributesFor(in.rights, state.Snapshot.TownID, request)
	if err != nil {
		return nil, err
	}
	expected, _ := request["expectedSnapshotHash"].(string)
	return nil, w.engine.Changes().Submit(state.Snapshot.TownID, &engine.Put{
		State: state, Expected: expected, Attributes: attributes, ActorID: in.rights.Sender(),
	}, engineReply[messages.Town]{w, in, nil})
}

func (w *ServedWorld) townPatch(in *incoming) (any, error) {
	request, err := w.parseChange(in)
	if err != nil {
		return nil, err
	}
	townID, expected := request["townId"].(string), request["expectedSnapshotHash"].(string)
	attributes, err := attributesFor(in.rights, townID, request)
	if err != nil {
		return nil, err
	}
	return nil, w.engine.Changes().Submit(townID, &engine.Patch{
		Patch: request["patch"], Expected: expected, Attributes: attributes,
		ActorID: in.rights.Sender(),
	}, engineReply[messages.Town]{w, in, nil})
}

// parseChange returns the tree of a request: the engine reads the state or the patch in it.
func (w *ServedWorld) parseChange(in *incoming) (map[string]any, error) {
	tree, err := schemas.Parse(schemas.RequestOf(string(in.endpoint.Verb)), in.data,
		schemas.Limits{Bytes: MaxSnapshot})
	request, _ := tree.(map[string]any)
	return request, err
}

// attributesFor returns the members of a request beside the town's state. It refuses a request that
// its sender may not make.
func attributesFor(
	rights access.Rights, townID string, request map[string]any,
) (engine.Attributes, error) {
	binding, _ := request["apply"].(string)
	a := engine.Attributes{
		Binding: apply.Binding(binding), Approval: approval.ParseTree(request["approval"]),
	}
	err := cmp.Or(rights.CheckTown(townID), rights.CheckRead(townID))
	switch {
	case err != nil:
	case a.Approval != nil:
		err = rights.CheckMember("approval")
	case a.Binding != "":
		err = rights.CheckMember("apply")
	}
	return a, err
}

func (w *ServedWorld) townRemove(in *incoming, r *messages.TownRemove) (any, error) {
	if err := in.rights.CheckTown(r.TownID); err != nil {
		return nil, err
	}
	removed := func(last messages.Town) (any, error) {
		return messages.TownSummary{
			TownID: last.TownID, SnapshotHash: last.SnapshotHash, DecisionEpoch: last.DecisionEpoch,
			Revision: last.Revision,
		}, nil
	}
	return nil, w.engine.Changes().Submit(r.TownID, &machine.Remove{ActorID: in.rights.Sender()},
		engineReply[messages.Town]{w, in, removed})
}
