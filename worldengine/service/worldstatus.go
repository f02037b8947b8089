package service

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/wire"
)

// report is an answer to world.status in the making.
type report struct {
	messages.WorldReport
	service *Service
	in      *incoming
}

// worldStatus answers with the state of the world, as far as the user may see it.
func (s *Service) worldStatus(ctx context.Context, in *incoming) (*nats.Msg, error) {
	request, err := parseRequest[messages.WorldStatus](schemas.WorldStatusRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	r := &report{service: s, in: in, WorldReport: messages.WorldReport{
		World: s.config.World, Problems: []string{}, Unknown: map[string]string{},
		TownsPaused:  []messages.TownPause{},
		TownsPending: []messages.TownPending{}, PluginsAbsent: []messages.AbsentPlugin{},
		Servers: []messages.Server{},
	}}
	if err := r.ask(ctx, request.Damage); err != nil {
		return nil, err
	}
	r.Healthy = len(r.Problems) == 0
	return reply(r.WorldReport)
}

func (r *report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// may reports whether the user may see a part: it may ask a verb, and read every town. Otherwise the
// part is unknown.
func (r *report) may(part string, verb wire.Verb) bool {
	err := r.in.rights.Verb(verb)
	if err == nil {
		err = r.in.rights.ReadWorld()
	}
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
		r.Control = controlOf(control)
	}
	end, behind, err := engine.Follow(ctx)
	if err != nil {
		return err
	}
	of := func(token string) bool { return r.in.rights.ReadToken(token) == nil }
	if damage {
		damaged, err := engine.Damaged(ctx, of)
		if err != nil {
			return err
		}
		for _, townID := range damaged {
			r.problem("the town %s answers TOWN_DAMAGED: handoffctl fsck says what to do", townID)
		}
	}
	problems, err := engine.Towns(ctx, &r.WorldReport, of)
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
		r.servers(ctx)
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
		r.problem("%s P1 of the last hour: handoffctl alerts list --open", more(n, "alert"))
	}
}

// more counts others of a thing.
func more(n int, thing string) string {
	if n == 1 {
		return "1 more " + thing
	}
	return fmt.Sprintf("%d more %ss", n, thing)
}

// servers puts in the servers, and what NATS says of the streams.
func (r *report) servers(ctx context.Context) {
	s := r.service
	for name, state := range s.engine.Streams(ctx) {
		r.StreamBytes += state.Bytes
		if name == wire.DeadLetterStream(s.config.World) {
			r.DeadLetters = state.Msgs
		}
	}
	switch r.DeadLetters {
	case 0:
	case 1:
		r.problem("1 dead letter: handoffctl deadletter list")
	default:
		r.problem("%d dead letters: handoffctl deadletter list", r.DeadLetters)
	}
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
