package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fixtures"
	"worldengine/worldengine/history"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
)

// Pages of the lists.
const (
	defaultTowns  = 10_000
	defaultEvents = 1_000
	defaultRuns   = 50

	defaultRevisions = 100
)

// parseRequest reads a payload into T after its schema has accepted it. An integer may be written
// in any way that JSON has: 1.5e1 is 15.
func parseRequest[T any](name schemas.Name, data []byte, maxBytes int) (T, error) {
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
	TownID        string                 `json:"townId"`
	Snapshot      *town.Snapshot         `json:"snapshot"`
	SnapshotHash  string                 `json:"snapshotHash"`
	DecisionEpoch int64                  `json:"decisionEpoch"`
	Revision      uint64                 `json:"revision"`
	Apply         string                 `json:"apply"`
	Approval      []handoff.ProposalType `json:"approval,omitempty"`
	PendingRunID  string                 `json:"pendingRunId,omitzero"`
	Paused        bool                   `json:"paused,omitzero"`
	AbsentSince   string                 `json:"pluginAbsentSince,omitzero"`

	LastFailure *history.Failure `json:"lastFailure,omitzero"`
}

func townReplyOf(t worldengine.Town) ([]byte, error) {
	absent := ""
	if !t.PluginAbsentSince.IsZero() {
		absent = runevents.Timestamp(t.PluginAbsentSince)
	}
	return reply(townReply{
		TownID: t.State.Snapshot.TownID, Snapshot: t.State.Snapshot, SnapshotHash: t.State.Hash,
		DecisionEpoch: t.State.Epoch(), Revision: t.Revision,
		Apply: string(t.Apply), Approval: t.Approval.Types, PendingRunID: t.PendingRunID,
		Paused: t.Paused, AbsentSince: absent, LastFailure: t.LastFailure,
	})
}

func (s *Service) townGet(ctx context.Context, rights access.Rights, data []byte) ([]byte, error) {
	r, err := parseRequest[struct {
		TownID   string `json:"townId"`
		Revision uint64 `json:"revision"`
	}](schemas.TownGetRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	if err := rights.Read(r.TownID); err != nil {
		return nil, err
	}
	get := s.engine.Town
	if r.Revision > 0 {
		get = func(ctx context.Context, townID string) (worldengine.Town, error) {
			return s.engine.TownAt(ctx, townID, r.Revision)
		}
	}
	t, err := get(ctx, r.TownID)
	if err != nil {
		return nil, err
	}
	return townReplyOf(t)
}

func (s *Service) townList(ctx context.Context, rights access.Rights, data []byte) ([]byte, error) {
	r, err := parseRequest[struct {
		After string `json:"after"`
		Limit int    `json:"limit"`
	}](schemas.TownListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultTowns
	}
	towns, more, err := s.readableTowns(ctx, rights, r.After, r.Limit)
	if err != nil {
		return nil, err
	}
	towns, more = s.thatFit(towns, more)
	page := struct {
		Towns []commitlog.Summary `json:"towns"`
		Next  string              `json:"next,omitzero"`
	}{Towns: towns}
	if more {
		page.Next = towns[len(towns)-1].TownID
	}
	return reply(page)
}

// thatFit cuts a page to runs.PageBytes.
func (s *Service) thatFit(towns []commitlog.Summary, more bool) ([]commitlog.Summary, bool) {
	const perTown = 256 // beside the id, with room to spare; an id's byte takes at most six
	room := runs.PageBytes
	for i := range towns {
		room -= perTown + 6*len(towns[i].TownID)
		if room < 0 && i > 0 {
			return towns[:i], true
		}
	}
	return towns, more
}

func (s *Service) resultGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	revision, err := s.revisionOf(in.header)
	if err != nil {
		return nil, err
	}
	r, err := parseRequest[struct {
		Key    string `json:"idempotencyKey"`
		TownID string `json:"townId"`
	}](schemas.ResultGetRequest, in.data, maxRequest)
	if err != nil {
		return nil, err
	}
	if towns, bound := in.rights.Readable(); bound && len(towns) == 1 && r.TownID == "" {
		r.TownID = towns[0] // the only town whose result it may be
	}
	receipt, err := s.engine.Receipt(ctx, r.TownID, r.Key)
	if err != nil {
		return nil, undisclosed(in.rights, err)
	}
	if err := in.rights.Read(receipt.TownID); err != nil {
		return nil, err
	}
	result := receipt.Result
	if revision == handoff.Revision1 {
		if result, err = s.storedRevision1(ctx, receipt); err != nil {
			return nil, err
		}
	}
	body, err := reply(struct {
		RunID  string         `json:"runId"`
		Result jsontext.Value `json:"result"`
	}{receipt.RunID, result})
	return &nats.Msg{Data: body, Header: revisionHeader(revision)}, err
}

func (s *Service) runEvents(
	ctx context.Context, rights access.Rights, data []byte,
) ([]byte, error) {
	r, err := parseRequest[struct {
		RunID     string `json:"runId"`
		AfterSeq  int64  `json:"afterSeq"`
		AfterMark uint64 `json:"afterMark"`
		Limit     int    `json:"limit"`
	}](schemas.RunEventsRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultEvents
	}
	if err := s.mayReadRun(ctx, rights, r.RunID); err != nil {
		return nil, err
	}
	after := runs.After{Seq: r.AfterSeq, Mark: r.AfterMark}
	page, err := s.engine.Runs().EventsAfter(ctx, r.RunID, after, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		Events       []jsontext.Value `json:"events"`
		LastEventSeq int64            `json:"lastEventSeq"`
		Mark         uint64           `json:"mark,omitzero"`
	}{page.Events, page.LastEventSeq, page.Mark})
}

func (s *Service) runGet(ctx context.Context, rights access.Rights, data []byte) ([]byte, error) {
	r, err := parseRequest[struct {
		RunID    string `json:"runId"`
		Fixtures bool   `json:"fixtures"`
	}](schemas.RunGetRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	if err := s.mayReadRun(ctx, rights, r.RunID); err != nil {
		return nil, err
	}
	var found struct {
		runevents.Snapshot
		Substatus   string              `json:"substatus,omitzero"`
		AbsentSince string              `json:"pluginAbsentSince,omitzero"`
		Fixtures    []*fixtures.Fixture `json:"fixtures,omitzero"`
		LeftOut     string              `json:"leftOut,omitzero"`
	}
	if found.Snapshot, err = s.engine.Runs().Get(ctx, r.RunID); err != nil {
		return nil, err
	}
	draining, err := s.engine.Draining(ctx, &found.Snapshot)
	if err != nil {
		s.config.Logger.Warn("it is not known whether a paused run drains: its town cannot be read",
			"run", r.RunID, "error", err)
	}
	if draining {
		found.Substatus = substatusDraining
	}
	if since := s.engine.PluginAbsentSince(&found.Snapshot); !since.IsZero() {
		found.AbsentSince = runevents.Timestamp(since)
	}
	if r.Fixtures {
		found.Fixtures, err = s.engine.Fixtures().Of(ctx, r.RunID)
		if why, ok := errors.AsType[fixtures.NotReplayable](err); ok {
			found.Fixtures, found.LeftOut = []*fixtures.Fixture{}, why.Error()
		} else if err != nil {
			return nil, err
		}
	}
	return reply(found)
}

func (s *Service) runList(ctx context.Context, rights access.Rights, data []byte) ([]byte, error) {
	r, err := parseRequest[struct {
		TownID    string  `json:"townId"`
		ActorID   string  `json:"actorId"`
		Type      string  `json:"type"`
		Status    string  `json:"status"`
		From      string  `json:"from"`
		To        string  `json:"to"`
		AfterMark *uint64 `json:"afterMark"`
		Order     string  `json:"order"`
		After     uint64  `json:"after"`
		Limit     int     `json:"limit"`
	}](schemas.RunListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultRuns
	}
	for _, m := range [][2]string{{"from", r.From}, {"to", r.To}, {"order", r.Order}} {
		if r.AfterMark != nil && m[1] != "" {
			return nil, invalidMember(m[0], "cannot be given with afterMark")
		}
	}
	filter := runs.RunFilter{
		ActorID: r.ActorID, Type: r.Type, Status: r.Status, Oldest: r.Order == "oldest",
		AfterMark: r.AfterMark,
	}
	if filter.From, err = timeOf("from", r.From); err != nil {
		return nil, err
	}
	if filter.To, err = timeOf("to", r.To); err != nil {
		return nil, err
	}
	page, err := s.readableRuns(ctx, rights, filter, r.TownID, r.After, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		Runs []runs.Row `json:"runs"`
		Next uint64     `json:"next,omitzero"`
		Mark uint64     `json:"mark"`
	}{page.Runs, page.Next, page.Mark})
}

// timeOf reads a member of a run.list that has the form of a time; the zero time where it is left
// out.
func timeOf(member, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, invalidMember(member, "must be a time that there is")
	}
	return t, nil
}

// invalidMember is the error of a member of a run.list that the schema cannot refuse.
func invalidMember(member, message string) error {
	return schemas.Invalid(schemas.RunListRequest, schemas.Violation{
		Path: schemas.Pointer(member), Message: message,
	})
}
