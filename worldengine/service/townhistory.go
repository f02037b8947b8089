package service

import (
	"cmp"
	"context"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/history"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
)

// historyPage is a reply of town.history that is being filled.
type historyPage struct {
	messages.History
	limit, room int
}

// take adds a revision. It returns false where the page is full, and sets where the next one
// begins.
func (p *historyPage) take(row messages.Change) bool {
	encoded, err := json.Marshal(row)
	p.room -= len(encoded) + 1
	if n := len(p.Revisions); n > 0 && (n == p.limit || p.room < 0 || err != nil) {
		p.Next = p.Revisions[n-1].Revision.Revision
		return false
	}
	p.Revisions = append(p.Revisions, row)
	return true
}

func (s *Service) memoryGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.MemoryGet](schemas.MemoryRequest, in.data)
	if err != nil {
		return nil, err
	}
	towns, bound := in.rights.Readable()
	if r.Scope.TownID != nil {
		err = in.rights.Read(*r.Scope.TownID)
	} else if bound && towns == nil {
		towns = []string{}
	}
	if err != nil {
		return nil, err
	}
	memory, err := s.engine.History().Memory(ctx, r.Scope, towns)
	if err != nil {
		return nil, err
	}
	return reply(memory)
}

func (s *Service) townHistory(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.TownHistory](schemas.TownHistoryRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	page := historyPage{
		History: messages.History{TownID: r.TownID, Revisions: []messages.Change{}},
		limit:   cmp.Or(r.Limit, defaultRevisions),
		room:    runs.PageBytes,
	}
	if r.TownID == "" {
		window := history.Window{Before: r.Before, After: r.After}
		visit := func(townID string, change messages.Revision) bool {
			return in.rights.Read(townID) != nil ||
				page.take(messages.Change{TownID: townID, Revision: change})
		}
		err = s.engine.History().Newest(ctx, window, visit)
	} else if err = in.rights.Read(r.TownID); err == nil {
		visit := func(revision messages.Revision) bool {
			return revision.Revision > r.After && page.take(messages.Change{Revision: revision})
		}
		err = s.engine.History().Visit(ctx, r.TownID, r.Before, visit)
	}
	if err != nil {
		return nil, err
	}
	return reply(page.History)
}
