package service

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Default numbers of rows in a page about the world.
const (
	defaultAlerts    = 50
	defaultApprovals = 100
)

func (s *Service) worldEndpoints() []*endpoint {
	return []*endpoint{
		direct(s, wire.AlertList, (*ServedWorld).alertList),
		direct(s, wire.AlertAck, (*ServedWorld).alertAck),
		direct(s, wire.ApprovalList, (*ServedWorld).approvalList),
		direct(s, wire.WhoAmI, (*ServedWorld).whoAmI),
		direct(s, wire.WorldStatus, (*ServedWorld).worldStatus),
		direct(s, wire.WorldSamples, (*ServedWorld).worldSamples),
		direct(s, wire.WorldClients, (*ServedWorld).worldClients),
	}
}

// alertList answers with the alerts of all towns, so it requires the right to read every town.
func (w *ServedWorld) alertList(in *incoming, r *messages.AlertList) (page messages.Alerts, err error) {
	if err := in.rights.CheckReadWorld(); err != nil {
		return page, err
	}
	r.Limit = cmp.Or(r.Limit, defaultAlerts)
	return w.engine.Alerts().List(w.ctx, *r)
}

// alertAck acknowledges an alert, in the name of the user.
func (w *ServedWorld) alertAck(in *incoming, r *messages.AlertAck) (alert messages.Alert, err error) {
	if err := in.rights.CheckReadWorld(); err != nil {
		return alert, err
	}
	by := cmp.Or(in.rights.Sender(), r.ActorID, "operator")
	alert, err = w.engine.Alerts().Acknowledge(w.ctx, r.Seq, by, r.Reason)
	if full := w.engine.Status().StorageError(); full != nil && errors.Is(err, alerts.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", commitlog.ErrStorageFull, full)
	}
	return alert, err
}

func (w *ServedWorld) approvalList(
	in *incoming, r *messages.ApprovalList,
) (page messages.Approvals, err error) {
	if _, err := in.rights.ReadableOf(r.TownID); err != nil {
		return page, err
	}
	list := w.engine.Approvals().List
	if r.Closed {
		list = w.engine.Approvals().Closed
	}
	return list(w.ctx, r.TownID, r.After, cmp.Or(r.Limit, defaultApprovals), runs.PageBytes,
		func(townID string) bool { return in.rights.CheckRead(townID) == nil })
}

func (w *ServedWorld) whoAmI(in *incoming, _ *messages.WhoAmI) (messages.Identity, error) {
	id := in.rights.Identity()
	id.World = w.config.World
	return id, nil
}

// worldSamples answers with samples of the towns that the user may read.
func (w *ServedWorld) worldSamples(
	in *incoming, r *messages.WorldSamples,
) (samples messages.Samples, err error) {
	towns, err := in.rights.ReadableOf(r.TownID)
	if err != nil {
		return samples, err
	}
	const anHour = 60
	return w.engine.Status().Samples(towns, cmp.Or(r.Minutes, anHour), cmp.Or(r.Points, anHour)), nil
}

// worldClients answers with the connected clients. If NATS is another process, the server does not
// know its clients, and the list is empty.
func (w *ServedWorld) worldClients(
	in *incoming, _ *messages.WorldClients,
) (list messages.Clients, err error) {
	if err := in.rights.CheckReadWorld(); err != nil {
		return list, err
	}
	if w.config.Clients != nil {
		list.Clients, err = w.config.Clients()
	}
	return list, err
}

// report is an answer to world.status that is being filled.
type report struct {
	messages.WorldReport
	served *ServedWorld
	rights access.Rights
}

// worldStatus answers with the state of the world, as far as the user may see it.
func (w *ServedWorld) worldStatus(
	in *incoming, request *messages.WorldStatus,
) (messages.WorldReport, error) {
	r := &report{served: w, rights: in.rights, WorldReport: messages.WorldReport{
		World: w.config.World, Unknown: map[string]string{},
	}}
	err := r.addEngineState(request.Damage)
	r.Healthy = len(r.Problems) == 0
	return r.WorldReport, err
}

func (r *report) addProblem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// mayShow reports whether the user may see a part of the report: the user needs the right to a verb,
// and the right to read every town. Otherwise mayShow notes the part as unknown.
func (r *report) mayShow(part string, verb wire.Verb) bool {
	err := cmp.Or(r.rights.CheckVerb(verb), r.rights.CheckReadWorld())
	if err != nil {
		r.Unknown[part] = failureOf(err).Text
	}
	return err == nil
}

func (r *report) addEngineState(damage bool) (err error) {
	if r.mayShow("pause", wire.ControlGet) {
		if r.Control, err = r.served.engine.Signals().Control(r.served.ctx, ""); err != nil {
			return err
		}
	}
	end, behind, err := r.served.engine.Status().CatchUp(r.served.ctx)
	if err != nil {
		return err
	}
	readable := func(token string) bool { return r.rights.CheckReadToken(token) == nil }
	if damage {
		damaged, err := r.served.engine.Watcher().DamagedTowns(r.served.ctx, readable)
		if err != nil {
			return err
		}
		for _, townID := range damaged {
			r.addProblem("the town %s answers TOWN_DAMAGED: handoffctl fsck says what to do", townID)
		}
	}
	problems, err := r.served.engine.Towns().Report(r.served.ctx, &r.WorldReport, readable)
	if err != nil {
		return err
	}
	r.Problems = append(r.Problems, problems...)
	if err := r.rights.CheckVerb(wire.ApprovalList); err != nil {
		r.Approvals, r.Unknown["approvals"] = messages.WaitingApprovals{}, failureOf(err).Text
	}
	if r.mayShow("alerts", wire.AlertList) {
		r.addAlerts()
	}
	if r.mayShow("servers", wire.AlertList) {
		r.LogEnd = end
		r.Problems = append(r.Problems, behind...)
		r.addServers()
	}
	return nil
}

func (r *report) addAlerts() {
	open, urgent, err := r.served.engine.Alerts().Summary(r.served.ctx)
	if err != nil {
		r.Unknown["alerts"] = phrase.Sentence(err)
	}
	r.Alerts = open
	for _, alert := range urgent {
		others := ""
		if n := alert.Open - 1; n > 0 {
			others = fmt.Sprintf(" And %d more of the last hour: handoffctl alerts list --open", n)
		}
		if n := len(alert.Towns); n > 1 {
			others += "; towns " + phrase.List(alert.Towns, n)
		}
		r.addProblem("alert %d, %s of %s: %s%s", alert.Seq, alert.Code, alert.At, alert.Message, others)
	}
}

// hostOf returns the host of a server, with which its name begins.
func hostOf(s *messages.Server) string {
	host, _, _ := strings.Cut(cmp.Or(s.Name, s.ID), ",")
	return host
}

// addServers adds the servers and their streams.
func (r *report) addServers() {
	streams := r.served.engine.Status().Streams(r.served.ctx)
	for _, state := range streams {
		r.StreamBytes += state.Bytes
	}
	if r.DeadLetters = streams[layout.DeadLetterStream(r.World)].Msgs; r.DeadLetters > 0 {
		r.addProblem("%s: handoffctl deadletter list", phrase.Counted(r.DeadLetters, "dead letter"))
	}
	writer := r.served.server()
	r.Servers = append(r.Servers, writer)
	if r.served.config.Standbys != nil {
		r.Servers = append(r.Servers, r.served.config.Standbys()...)
	}
	stats := writer.Stats
	r.Waiting, r.Alerts.Lost = stats.Unfinished, stats.AlertsLost
	switch disk := stats.Disk; {
	case stats.StorageFull != "":
		r.addProblem("the server %s stores nothing: %s", hostOf(&writer), stats.StorageFull)
	case disk == nil:
		r.Unknown["disk"] = "the NATS that the servers have joined is another process; ask it " +
			"for its disk"
	case disk.Low():
		r.addProblem("the disk of the server %s has %s free of %s, and below %s it stores nothing",
			hostOf(&writer), diskspace.Size(disk.Free), diskspace.Size(disk.Total),
			diskspace.Size(disk.Keep))
	}
	if stats.LogLost != "" {
		r.addProblem("the server %s judges nothing: %s", hostOf(&writer), stats.LogLost)
	}
	if stats.ReplicaDamaged != "" {
		r.addProblem("nodes of NATS lack messages of the log, see the alert REPLICA_DAMAGED: %s",
			stats.ReplicaDamaged)
	}
}
