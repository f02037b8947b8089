package service

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/town"
)

// Pages of the lists.
const (
	defaultTowns  = 10_000
	defaultEvents = 1_000
	defaultRuns   = 50
)

// request reads a payload into T after its schema has passed it. An integer is one however it was
// written: 1.5e1 is 15.
func request[T any](name schemas.Name, data []byte, maxBytes int) (T, error) {
	var v T
	tree, err := schemas.Parse(name, data, schemas.Limits{Bytes: maxBytes})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(handoff.AppendCanonical(nil, tree), &v); err != nil {
		return v, schemas.Invalid(name, schemas.Violation{Message: err.Error()})
	}
	return v, nil
}

func reply(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("service: an answer cannot be written: %w", err)
	}
	return data, nil
}

// townReply is the answer of town.get, town.put and town.patch.
type townReply struct {
	TownID        string         `json:"townId"`
	Snapshot      *town.Snapshot `json:"snapshot"`
	SnapshotHash  string         `json:"snapshotHash"`
	DecisionEpoch int64          `json:"decisionEpoch"`
	Revision      uint64         `json:"revision"`
	Apply         string         `json:"apply"`
	PendingRunID  string         `json:"pendingRunId,omitzero"`
	Paused        bool           `json:"paused,omitzero"`
}

func townReplyOf(t worldengine.Town) ([]byte, error) {
	return reply(townReply{
		TownID: t.State.Snapshot.TownID, Snapshot: t.State.Snapshot, SnapshotHash: t.State.Hash,
		DecisionEpoch: t.State.Epoch(), Revision: t.Revision,
		Apply: string(t.Apply), PendingRunID: t.PendingRunID, Paused: t.Paused,
	})
}

func (s *Service) townGet(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		TownID string `json:"townId"`
	}](schemas.TownGetRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	t, err := s.engine.Town(ctx, r.TownID)
	if err != nil {
		return nil, err
	}
	return townReplyOf(t)
}

func (s *Service) townList(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		After string `json:"after"`
		Limit int    `json:"limit"`
	}](schemas.TownListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultTowns
	}
	towns, more, err := s.engine.List(ctx, r.After, r.Limit)
	if err != nil {
		return nil, err
	}
	towns, more = s.thatFit(towns, more)
	page := struct {
		Towns []worldengine.Summary `json:"towns"`
		Next  string                `json:"next,omitzero"`
	}{Towns: towns}
	if more {
		page.Next = towns[len(towns)-1].TownID
	}
	return reply(page)
}

// thatFit cuts a page to what one message can hold.
func (s *Service) thatFit(towns []worldengine.Summary, more bool) ([]worldengine.Summary, bool) {
	const perTown = 256 // beside the id, with room to spare; an id's byte takes at most six
	room := s.replies.MaxPayload() - 1024
	for i := range towns {
		room -= perTown + 6*int64(len(towns[i].TownID))
		if room < 0 && i > 0 {
			return towns[:i], true
		}
	}
	return towns, more
}

// takePut hands a town.put to a reader, who reads it and leaves it to the engine; the answer goes
// out when the town is stored.
func (s *Service) takePut() func(micro.Request) {
	return s.takeChange(changeWeight, func(
		data []byte, limits schemas.Limits, rights access.Rights, done func(worldengine.Town, error),
	) error {
		p, err := parsePut(data, limits)
		if err != nil {
			return err
		}
		if err := rights.Town(p.state.Snapshot.TownID); err != nil {
			return err
		}
		return s.engine.SubmitPut(p.state, p.expected, p.binding, done)
	})
}

// takePatch does for a town.patch what takePut does for a town.put.
func (s *Service) takePatch() func(micro.Request) {
	return s.takeChange(patchWeight, func(
		data []byte, limits schemas.Limits, rights access.Rights, done func(worldengine.Town, error),
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
		return s.engine.SubmitPatch(townID, request["patch"],
			request["expectedSnapshotHash"].(string), done)
	})
}

// takeChange makes the handler of a request that changes a town's state, of which a byte counts for
// weight of what may be held.
func (s *Service) takeChange(
	weight int64, submit func([]byte, schemas.Limits, access.Rights, func(worldengine.Town, error)) error,
) func(micro.Request) {
	l := s.addLane(s.changes, s.parsers())
	return func(r micro.Request) {
		replyTo, data := r.Reply(), r.Data()
		if len(data) > s.config.MaxSnapshot {
			s.fail(replyTo, tooLarge(len(data), s.config.MaxSnapshot))
			return
		}
		rights := s.rightsOf(r)
		p := s.admit(r, l.places, s.townOf(rights, data), requestBytes+weight*int64(len(data)))
		s.enqueue(l, p, replyTo, func() error {
			limits := schemas.Limits{Bytes: s.config.MaxSnapshot}
			return submit(data, limits, rights, func(t worldengine.Town, err error) {
				s.answerTown(p, replyTo, t, err)
			})
		})
	}
}

func (s *Service) answerTown(p *place, replyTo string, t worldengine.Town, err error) {
	s.conclude(p, replyTo, func() (*nats.Msg, error) {
		if err != nil {
			return nil, err
		}
		body, err := townReplyOf(t)
		return &nats.Msg{Data: body}, err
	})
}

// put is a town.put that was read.
type put struct {
	state    town.State
	expected string
	binding  worldengine.Binding
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
	binding, _ := request["apply"].(string)
	return put{state, expected, worldengine.Binding(binding)}, nil
}

func (s *Service) resultGet(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		Key string `json:"idempotencyKey"`
	}](schemas.ResultGetRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	receipt, err := s.engine.Receipt(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		RunID  string         `json:"runId"`
		Result jsontext.Value `json:"result"`
	}{receipt.RunID, receipt.Result})
}

func (s *Service) runEvents(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		RunID    string `json:"runId"`
		AfterSeq int64  `json:"afterSeq"`
		Limit    int    `json:"limit"`
	}](schemas.RunEventsRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultEvents
	}
	page, err := s.engine.Events(ctx, r.RunID, r.AfterSeq, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		Events       []jsontext.Value `json:"events"`
		LastEventSeq int64            `json:"lastEventSeq"`
	}{page.Events, page.LastEventSeq})
}

func (s *Service) runGet(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		RunID string `json:"runId"`
	}](schemas.RunGetRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	run, err := s.engine.Run(ctx, r.RunID)
	if err != nil {
		return nil, err
	}
	return reply(run)
}

func (s *Service) runList(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[struct {
		TownID string `json:"townId"`
		From   string `json:"from"`
		To     string `json:"to"`
		After  uint64 `json:"after"`
		Limit  int    `json:"limit"`
	}](schemas.RunListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultRuns
	}
	from, err := timeOf("from", r.From)
	if err != nil {
		return nil, err
	}
	to, err := timeOf("to", r.To)
	if err != nil {
		return nil, err
	}
	page, err := s.engine.Runs(ctx, worldengine.RunFilter{TownID: r.TownID, From: from, To: to}, r.After, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		Runs []runevents.Snapshot `json:"runs"`
		Next uint64               `json:"next,omitzero"`
	}{page.Runs, page.Next})
}

// timeOf reads a member of a run.list that has the form of a time; the zero time where it is left out.
func timeOf(member, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, schemas.Invalid(schemas.RunListRequest, schemas.Violation{
			Path: schemas.Pointer(member), Message: "must be a time that there is",
		})
	}
	return t, nil
}
