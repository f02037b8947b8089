package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/fixtures"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
)

// Pages of the lists.
const (
	defaultTowns   = 10_000
	defaultEvents  = 1_000
	defaultRuns    = 50
	defaultCommits = 100

	defaultRevisions = 100
)

// parseRequest reads a payload into T after its schema has accepted it. An integer may be written
// in any way that JSON has: 1.5e1 is 15.
func parseRequest[T any](name schemas.Name, data []byte) (T, error) {
	var v T
	tree, err := schemas.Parse(name, data, schemas.Limits{Bytes: maxRequest})
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(handoff.AppendCanonical(nil, tree), &v); err != nil {
		return v, schemas.Invalid(name, schemas.Violation{Message: err.Error()})
	}
	return v, nil
}

func reply(v any) (*nats.Msg, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("service: an answer cannot be written: %w", err)
	}
	return &nats.Msg{Data: data}, nil
}

func townReplyOf(t worldengine.Town) (*nats.Msg, error) {
	absent := ""
	if !t.PluginAbsentSince.IsZero() {
		absent = runevents.Timestamp(t.PluginAbsentSince)
	}
	return reply(messages.Town{
		TownSummary: messages.TownSummary{
			TownID: t.State.Snapshot.TownID, SnapshotHash: t.State.Hash,
			DecisionEpoch: t.State.Epoch(), Revision: t.Revision,
			Apply: string(t.Apply), PendingRunID: t.PendingRunID, Paused: t.Paused,
			PluginAbsentSince: absent,
		},
		Snapshot: t.State.Snapshot, Approval: t.Approval.Types,
		PluginAbsent: t.PluginAbsent, LastFailure: t.LastFailure,
	})
}

func (s *Service) townGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.TownGet](schemas.TownGetRequest, in.data)
	if err != nil {
		return nil, err
	}
	if err := in.rights.Read(r.TownID); err != nil {
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

func (s *Service) townList(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.TownList](schemas.TownListRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultTowns
	}
	query := worldengine.TownQuery{TownList: r}
	if towns, bound := in.rights.Readable(); bound {
		query.Only = append([]string{}, towns...)
	}
	page, err := s.engine.List(ctx, query)
	if err != nil {
		return nil, err
	}
	cut(&page)
	return reply(page)
}

// cut cuts a page to runs.PageBytes.
func cut(page *messages.Towns) {
	const perTown = 512 // beside the id, with room to spare; an id's byte takes at most six
	room := runs.PageBytes
	for i := range page.Towns {
		room -= perTown + 6*len(page.Towns[i].TownID)
		if room < 0 && i > 0 {
			page.Towns, page.Next = page.Towns[:i], page.Towns[i-1].TownID
			return
		}
	}
}

func (s *Service) resultGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	revision, err := s.revisionOf(in.header)
	if err != nil {
		return nil, err
	}
	r, err := parseRequest[messages.ResultGet](schemas.ResultGetRequest, in.data)
	if err != nil {
		return nil, err
	}
	named := r.TownID != ""
	if named {
		if err := in.rights.Read(r.TownID); err != nil {
			return nil, err
		}
	} else if towns, bound := in.rights.Readable(); bound && len(towns) == 1 {
		r.TownID = towns[0] // the only town whose result it may be
	}
	receipt, err := s.engine.Receipt(ctx, r.TownID, r.IdempotencyKey)
	switch {
	case err != nil && !named:
		return nil, undisclosed(in.rights, err)
	case err != nil:
		return nil, err
	}
	if err := in.rights.Read(receipt.TownID); err != nil {
		return nil, err
	}
	result := receipt.Result
	if revision == handoff.Revision1 {
		if result, err = storedRevision1(receipt); err != nil {
			return nil, err
		}
	}
	msg, err := reply(messages.Result{RunID: receipt.RunID, Result: result})
	if err == nil {
		msg.Header = revisionHeader(revision)
	}
	return msg, err
}

func (s *Service) runEvents(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.RunEvents](schemas.RunEventsRequest, in.data)
	if err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultEvents
	}
	if err := s.mayReadRun(ctx, in.rights, r.RunID); err != nil {
		return nil, err
	}
	after := runs.After{Seq: r.AfterSeq, Mark: r.AfterMark}
	var base *runevents.Snapshot
	if r.SnapshotSeq != nil {
		after.Seq = *r.SnapshotSeq
		if base, err = s.engine.Runs().SnapshotAt(ctx, r.RunID, after.Seq); err != nil {
			return nil, err
		}
	}
	page, err := s.engine.Runs().EventsAfter(ctx, r.RunID, after, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(messages.Events{
		Events: page.Events, LastEventSeq: page.LastEventSeq, Mark: page.Mark,
		Snapshot: base,
	})
}

func (s *Service) runGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.RunGet](schemas.RunGetRequest, in.data)
	if err != nil {
		return nil, err
	}
	if err := s.mayReadRun(ctx, in.rights, r.RunID); err != nil {
		return nil, err
	}
	var found struct {
		messages.Run
		Fixtures []*fixtures.Fixture `json:"fixtures,omitzero"`
		LeftOut  string              `json:"leftOut,omitzero"`
	}
	if found.Run, err = s.engine.Runs().View(ctx, r.RunID); err != nil {
		return nil, err
	}
	draining, err := s.engine.Draining(ctx, &found.Snapshot)
	if err != nil {
		s.config.Logger.Warn("it is not known whether a paused run drains: its town cannot be read",
			"run", r.RunID, "error", err)
	}
	if draining {
		found.Substatus = messages.Draining
	}
	if found.PluginAbsent = s.engine.AwaitedPlugin(&found.Snapshot); found.PluginAbsent != nil {
		found.PluginAbsentSince = found.PluginAbsent.Since
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

func (s *Service) runList(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.RunList](schemas.RunListRequest, orEmpty(in.data))
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
		AfterMark: r.AfterMark, Reason: r.Reason, ID: r.ID,
	}
	if filter.From, err = timeOf("from", r.From); err != nil {
		return nil, err
	}
	if filter.To, err = timeOf("to", r.To); err != nil {
		return nil, err
	}
	page, err := s.readableRuns(ctx, in.rights, filter, r.TownID, r.After, r.Limit)
	if err != nil {
		return nil, err
	}
	for i := range page.Runs {
		page.Runs[i].PluginAbsent = s.engine.AwaitedPlugin(&page.Runs[i].Snapshot)
	}
	return reply(page)
}

// worldSamples answers with samples of the towns that the user may read.
func (s *Service) worldSamples(_ context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.WorldSamples](schemas.WorldSamplesRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	var towns []string
	if ids, bound := in.rights.Readable(); bound {
		towns = append([]string{}, ids...)
	}
	if r.TownID != "" {
		if err := in.rights.Read(r.TownID); err != nil {
			return nil, err
		}
		towns = []string{r.TownID}
	}
	const anHour = 60
	return reply(s.engine.Samples(towns, cmp.Or(r.Minutes, anHour), cmp.Or(r.Points, anHour)))
}

// worldClients answers who is connected. A server on a NATS of another process does not know.
func (s *Service) worldClients(_ context.Context, in *incoming) (*nats.Msg, error) {
	_, err := parseRequest[struct{}](schemas.WorldClientsRequest, orEmpty(in.data))
	if err == nil {
		err = in.rights.ReadWorld()
	}
	if err != nil {
		return nil, err
	}
	list := messages.Clients{Clients: []messages.Client{}}
	if s.config.Clients != nil {
		if list.Clients, err = s.config.Clients(); err != nil {
			return nil, err
		}
	}
	return reply(list)
}

// timeOf reads a member of a run.list that has the form of a time; the zero time where it is left
// out.
func timeOf(member, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := schemas.ParseTime(text)
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
