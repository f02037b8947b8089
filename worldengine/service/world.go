package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/wire"
)

// Pages of the lists about the world.
const (
	defaultAlerts    = 50
	defaultApprovals = 100
)

// alertList answers with alerts of all towns, so only those may ask who may read every town.
func (s *Service) alertList(
	ctx context.Context, in *incoming, r *messages.AlertList,
) (reply messages.Alerts, err error) {
	if err := in.rights.ReadWorld(); err != nil {
		return reply, err
	}
	page, err := s.engine.Alerts().List(ctx, alerts.Filter{After: r.After, Open: r.Open},
		cmp.Or(r.Limit, defaultAlerts))
	return messages.Alerts{Alerts: page.Alerts, Next: page.Next}, err
}

// alertAck acknowledges an alert, in the name of the user.
func (s *Service) alertAck(
	ctx context.Context, in *incoming, r *messages.AlertAck,
) (messages.Alert, error) {
	if err := in.rights.ReadWorld(); err != nil {
		return messages.Alert{}, err
	}
	by := cmp.Or(s.actorOf(in.rights), r.ActorID, "operator")
	acknowledged, err := s.engine.Alerts().Acknowledge(ctx, r.Seq, by, r.Reason)
	if full := s.engine.MayStore(); full != nil && errors.Is(err, alerts.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", commitlog.ErrStorageFull, full)
	}
	return acknowledged, err
}

func (s *Service) approvalList(
	ctx context.Context, in *incoming, r *messages.ApprovalList,
) (reply messages.Approvals, err error) {
	if _, err := in.rights.ReadableOf(r.TownID); err != nil {
		return reply, err
	}
	list := (*approvals.Reader).List
	if r.Closed {
		list = (*approvals.Reader).Closed
	}
	page, err := list(s.engine.Approvals(), ctx, r.TownID, r.After,
		cmp.Or(r.Limit, defaultApprovals), runs.PageBytes,
		func(townID string) bool { return in.rights.Read(townID) == nil })
	return messages.Approvals{
		Approvals: append([]*messages.Approval{}, page.Rows...), Next: page.Next,
	}, err
}

func (s *Service) whoAmI(
	_ context.Context, in *incoming, _ *struct{},
) (messages.Identity, error) {
	id := in.rights.Identity(s.config.Access)
	return messages.Identity{
		World: s.config.World, User: id.User, Role: string(id.Role), Towns: id.Towns,
		Actors: id.Actors, Read: id.Read, Verbs: id.Verbs,
	}, nil
}

// worldSamples answers with samples of the towns that the user may read.
func (s *Service) worldSamples(
	_ context.Context, in *incoming, r *messages.WorldSamples,
) (messages.Samples, error) {
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return messages.Samples{}, err
	}
	const anHour = 60
	return s.engine.Samples(towns, cmp.Or(r.Minutes, anHour), cmp.Or(r.Points, anHour)), nil
}

// worldClients answers who is connected. A server on a NATS of another process does not know.
func (s *Service) worldClients(
	_ context.Context, in *incoming, _ *struct{},
) (list messages.Clients, err error) {
	if err := in.rights.ReadWorld(); err != nil {
		return list, err
	}
	list.Clients = []messages.Client{}
	if s.config.Clients != nil {
		list.Clients, err = s.config.Clients()
	}
	return list, err
}

// report is an answer to world.status in the making.
type report struct {
	messages.WorldReport
	service *Service
	in      *incoming
}

// worldStatus answers with the state of the world, as far as the user may see it.
func (s *Service) worldStatus(
	ctx context.Context, in *incoming, request *messages.WorldStatus,
) (messages.WorldReport, error) {
	r := &report{service: s, in: in, WorldReport: messages.WorldReport{
		World: s.config.World, Problems: []string{}, Unknown: map[string]string{},
		TownsPaused:  []messages.TownPause{},
		TownsPending: []messages.TownPending{}, PluginsAbsent: []messages.AbsentPlugin{},
		Servers: []messages.Server{},
	}}
	err := r.ask(ctx, request.Damage)
	r.Healthy = len(r.Problems) == 0
	return r.WorldReport, err
}

func (r *report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// may reports whether the user may see a part: it may ask a verb, and read every town. Otherwise the
// part is unknown.
func (r *report) may(part string, verb wire.Verb) bool {
	err := cmp.Or(r.in.rights.Verb(verb), r.in.rights.ReadWorld())
	if err != nil {
		r.Unknown[part] = specOf(err).Text
	}
	return err == nil
}

func (r *report) ask(ctx context.Context, damage bool) error {
	engine := r.service.engine
	if r.may("pause", wire.ControlGet) {
		control, err := engine.Control(ctx, "")
		if err != nil {
			return err
		}
		r.Control = control
	}
	end, behind, err := engine.Follow(ctx)
	if err != nil {
		return err
	}
	readable := func(token string) bool { return r.in.rights.ReadToken(token) == nil }
	if damage {
		damaged, err := engine.Damaged(ctx, readable)
		if err != nil {
			return err
		}
		for _, townID := range damaged {
			r.problem("the town %s answers TOWN_DAMAGED: handoffctl fsck says what to do", townID)
		}
	}
	problems, err := engine.Towns(ctx, &r.WorldReport, readable)
	if err != nil {
		return err
	}
	r.Problems = append(r.Problems, problems...)
	if err := r.in.rights.Verb(wire.ApprovalList); err != nil {
		r.Approvals, r.Unknown["approvals"] = messages.WaitingApprovals{}, specOf(err).Text
	}
	if r.may("alerts", wire.AlertList) {
		r.alerts(ctx)
	}
	if r.may("servers", wire.AlertList) {
		r.LogEnd = end
		r.Problems = append(r.Problems, behind...)
		r.streams(ctx)
		r.servers()
	}
	return nil
}

func (r *report) alerts(ctx context.Context) {
	summary, err := r.service.engine.Alerts().Summary(ctx)
	if err != nil {
		r.Unknown["alerts"] = wire.Sentence(err)
	}
	r.Alerts = summary.OpenAlerts
	for i := range summary.Urgent {
		alert := &summary.Urgent[i]
		r.problem("alert %d, %s of %s: %s", alert.Seq, alert.Code, alert.At, alert.Message)
	}
	if n := summary.MoreUrgent; n > 0 {
		r.problem("%d more %s P1 of the last hour: handoffctl alerts list --open", n,
			plural(n, "alert"))
	}
}

// plural returns the noun for n things.
func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// streams puts in what NATS says of the streams.
func (r *report) streams(ctx context.Context) {
	deadLetters := wire.DeadLetterStream(r.World)
	for name, state := range r.service.engine.Streams(ctx) {
		r.StreamBytes += state.Bytes
		if name == deadLetters {
			r.DeadLetters = state.Msgs
		}
	}
	if n := r.DeadLetters; n > 0 {
		r.problem("%d dead %s: handoffctl deadletter list", n, plural(n, "letter"))
	}
}

func (r *report) servers() {
	s := r.service
	writer := s.discovery.server()
	r.Servers = append(r.Servers, writer)
	if s.config.Standbys != nil {
		r.Servers = append(r.Servers, s.config.Standbys()...)
	}
	stats := writer.Stats
	r.Waiting, r.Alerts.Lost = stats.Waiting, stats.AlertsLost
	switch disk := stats.Disk; {
	case stats.StorageFull != "":
		r.problem("the server %s stores nothing: %s", writer.ID, stats.StorageFull)
	case disk == nil:
		r.Unknown["disk"] = "the NATS that the servers have joined is another process; ask it " +
			"for its disk"
	case disk.Low():
		r.problem("the disk of the server %s has %s free of %s, and below %s it stores nothing",
			writer.ID, storage.Size(disk.Free), storage.Size(disk.Total), storage.Size(disk.Keep))
	}
	if stats.LogLost != "" {
		r.problem("the server %s judges nothing: %s", writer.ID, stats.LogLost)
	}
}
