package service

import (
	"cmp"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/appends"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Default numbers of rows in a page about runs.
const (
	defaultEvents = 1_000
	defaultRuns   = 50
)

// maxAppend bounds a run.append, in bytes.
const maxAppend = 1 << 20

func (s *Service) runEndpoints() []*endpoint {
	return []*endpoint{
		direct(s, wire.ResultGet, (*ServedWorld).resultGet),
		direct(s, wire.RunGet, (*ServedWorld).runGet),
		direct(s, wire.RunList, (*ServedWorld).runList),
		direct(s, wire.RunEvents, (*ServedWorld).runEvents),
		direct(s, wire.EventList, (*ServedWorld).eventList),
		s.queuedEndpoint(wire.RunAppend, worldHandler((*ServedWorld).runAppend), maxAppend, changeWeight),
	}
}

// checkReadRun refuses to read a run of a town that the rights do not cover. It refuses a run that
// does not exist in the same way, so that a refusal does not disclose which runs exist.
func (w *ServedWorld) checkReadRun(rights access.Rights, runID string) error {
	if rights.Readable() == nil {
		return nil
	}
	token, err := w.engine.Runs().Town(w.ctx, runID)
	if err != nil {
		return hideExistence(rights, err)
	}
	return rights.CheckReadToken(token)
}

// hideExistence returns access.ErrUnreadable instead of an error that discloses whether a run or a
// result exists, unless the rights cover every town.
func hideExistence(rights access.Rights, err error) error {
	for _, disclosing := range []error{
		runs.ErrUnknownRun, runs.ErrRunDamaged, engine.ErrUnknownResult,
	} {
		if rights.Readable() != nil && errors.Is(err, disclosing) {
			return access.ErrUnreadable
		}
	}
	return err
}

func (w *ServedWorld) resultGet(in *incoming, r *messages.ResultGet) (*nats.Msg, error) {
	revision, err := w.revisionOf(in.header)
	if err != nil {
		return nil, err
	}
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return nil, err
	}
	townID := ""
	if len(towns) == 1 {
		townID = towns[0] // the only town whose results the user may read
	}
	receipt, err := w.engine.Receipts().Get(w.ctx, townID, r.IdempotencyKey)
	if err != nil && r.TownID == "" {
		err = hideExistence(in.rights, err)
	}
	if err == nil {
		err = in.rights.CheckRead(receipt.TownID)
	}
	if err != nil {
		return nil, err
	}
	result := receipt.Result
	if revision == handoff.Revision1 {
		one, err := revision1Of(receipt)
		if err == nil {
			result, err = one.MarshalWire()
		}
		if err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(messages.Result{RunID: receipt.RunID, Result: result})
	return &nats.Msg{Data: body, Header: revisionHeader(revision)}, err
}

func (w *ServedWorld) runEvents(in *incoming, r *messages.RunEvents) (reply messages.Events, err error) {
	if err := w.checkReadRun(in.rights, r.RunID); err != nil {
		return reply, err
	}
	var snapshot *runevents.Snapshot
	if r.SnapshotSeq != nil {
		r.AfterSeq = *r.SnapshotSeq
		snapshot, err = w.engine.Runs().SnapshotAt(w.ctx, r.RunID, r.AfterSeq)
		if err != nil {
			return reply, err
		}
	}
	reply, err = w.engine.Runs().Events(w.ctx, r.RunID, r.AfterSeq, r.AfterMark,
		cmp.Or(r.Limit, defaultEvents))
	reply.Snapshot = snapshot
	return reply, err
}

// run is the reply of run.get.
type run struct {
	messages.Run
	Fixtures []*fixture.Fixture `json:"fixtures,omitzero"`
	LeftOut  string             `json:"leftOut,omitzero"`
}

func (w *ServedWorld) runGet(in *incoming, r *messages.RunGet) (found run, err error) {
	if err := w.checkReadRun(in.rights, r.RunID); err != nil {
		return found, err
	}
	if found.Run, err = w.engine.Runs().View(w.ctx, r.RunID); err != nil {
		return found, err
	}
	draining, err := w.engine.Signals().Draining(w.ctx, &found.Snapshot)
	if err != nil {
		w.config.Logger.Warn("it is not known whether a paused run drains: its town cannot be read",
			"run", r.RunID, "error", err)
	}
	if draining {
		found.Substatus = messages.Draining
	}
	if found.PluginAbsent = w.engine.Towns().AwaitedGame(&found.Snapshot); found.PluginAbsent != nil {
		found.PluginAbsentSince = found.PluginAbsent.Since
	}
	if !r.Fixtures {
		return found, nil
	}
	found.Fixtures, err = w.engine.Fixtures(w.ctx, r.RunID)
	if reason, ok := errors.AsType[runs.NotReplayable](err); ok {
		found.Fixtures, found.LeftOut, err = []*fixture.Fixture{}, reason.Error(), nil
	}
	return found, err
}

func (w *ServedWorld) runList(in *incoming, r *messages.RunList) (page messages.Runs, err error) {
	for _, m := range [][2]string{{"from", r.From}, {"to", r.To}, {"order", r.Order}} {
		if r.AfterMark != nil && m[1] != "" {
			return page, invalidMember(m[0], "cannot be given with afterMark")
		}
	}
	filter := index.Filter{
		ActorID: r.ActorID, Type: r.Type, Status: r.Status, Oldest: r.Order == "oldest",
		AfterMark: r.AfterMark, Reason: r.Reason, ID: r.ID,
	}
	if filter.From, err = timeOf("from", r.From); err != nil {
		return page, err
	}
	if filter.To, err = timeOf("to", r.To); err != nil {
		return page, err
	}
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return page, err
	}
	if towns != nil && len(towns) == 0 {
		page.Runs = []messages.RunRow{}
		page.Mark, err = w.engine.Runs().Mark(w.ctx)
		return page, err
	}
	filter.Towns = towns
	page, err = w.engine.Runs().List(w.ctx, filter, r.After, cmp.Or(r.Limit, defaultRuns))
	for i := range page.Runs {
		page.Runs[i].PluginAbsent = w.engine.Towns().AwaitedGame(&page.Runs[i].Snapshot)
	}
	return page, err
}

// timeOf reads a member of a run.list that has the form of a time. If the member is left out,
// timeOf returns the zero time.
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

func (w *ServedWorld) runAppend(in *incoming) (any, error) {
	townID, writes, err := runlog.ParseAppend(in.data, schemas.Limits{Bytes: maxAppend})
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(in.rights.CheckTown(townID), in.rights.CheckRead(townID)); err != nil {
		return nil, err
	}
	from := appends.Sender{
		Name: cmp.Or(in.rights.Sender(), appends.AnonymousSender), MayRead: in.rights.CheckReadToken,
	}
	reply := func(appended []runevents.Appended) (any, error) { return messages.Appended{Appended: appended}, nil }
	return nil, w.engine.Appends().Submit(from, townID, writes,
		engineReply[[]runevents.Appended]{w, in, reply})
}
