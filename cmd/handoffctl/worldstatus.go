package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"worldengine/cmd/internal/counted"
	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/storage"
	"worldengine/worldengine/wire"
)

// worldStatus is what handoffctl status says of a world. It has the members of control.get, too.
type worldStatus struct {
	messages.Control `json:",inline"`
	World            string `json:"world"`
	Healthy          bool   `json:"healthy"`
	// Problems are why the world is not healthy, and Unknown is what this user or machine cannot
	// see.
	Problems []string          `json:"problems"`
	Unknown  map[string]string `json:"unknown"`

	Towns         int            `json:"towns"`
	TownsPaused   []townPause    `json:"townsPaused"`
	TownsPending  []townPending  `json:"townsPending"`
	PluginsAbsent []absentPlugin `json:"pluginsAbsent"`
	Servers       []serverStatus `json:"servers"`
	Waiting       int            `json:"waiting"`
	// LogEnd is the last sequence of the log, 0 where it is unknown.
	LogEnd      uint64     `json:"logEnd"`
	Alerts      openAlerts `json:"alerts"`
	DeadLetters uint64     `json:"deadLetters"`
	StreamBytes uint64     `json:"streamBytes"`
}

type townPause struct {
	TownID  string    `json:"townId"`
	ActorID string    `json:"actorId"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

type townPending struct {
	TownID string `json:"townId"`
	RunID  string `json:"runId"`
}

type absentPlugin struct {
	TownID string `json:"townId"`
	Since  string `json:"since"`
}

// serverStatus is one server of the world.
type serverStatus struct {
	ID      string      `json:"id"`
	Version string      `json:"version"`
	Started time.Time   `json:"started"`
	Stats   serverStats `json:"stats"`
	// verbs are what it has answered, by verb.
	verbs []verbCount
}

// serverStats are the statistics of a server.
type serverStats struct {
	worldengine.Stats
	// Disk is that of the server, nil where it has joined a NATS of another process.
	Disk *storage.State `json:"disk,omitzero"`
	// Overload says how full the server is, and what it has refused.
	Overload struct {
		Held      int              `json:"held"`
		HeldBytes int64            `json:"heldBytes"`
		Refused   map[string]int64 `json:"refused"`
	} `json:"overload"`
}

// openAlerts are the alerts that are not acknowledged.
type openAlerts struct {
	Count  map[runevents.Severity]int `json:"count"`
	Newest []client.Alert             `json:"newest"`
	// More is set if there are older ones that were not read: then Count is too low.
	More bool `json:"more,omitzero"`
	// Acknowledged is how many others are acknowledged.
	Acknowledged int `json:"acknowledged"`
	// Lost is how many alerts servers could not store since their start.
	Lost int64 `json:"lost"`
}

const (
	urgentOf    = time.Hour              // which alerts of severity P1 are a problem
	mostAlerts  = 20_000                 // how many alerts status reads: more than are kept
	mostUrgent  = 5                      // how many alerts of severity P1 are told one by one
	answersWait = 250 * time.Millisecond // how long status waits for one more server to answer
)

// followWait is how long the index may take to come to the end of the log. Tests, which may run on
// a busy machine, wait longer.
var followWait = 2 * time.Second

// worldStatus asks for everything that the user may see.
func (a *app) worldStatus(ctx context.Context, server *client.Client) (*worldStatus, error) {
	s := &worldStatus{
		World: a.flags.World, Problems: []string{}, Unknown: map[string]string{},
		TownsPaused:  []townPause{},
		TownsPending: []townPending{}, PluginsAbsent: []absentPlugin{}, Servers: []serverStatus{},
	}
	var err error
	s.Control, err = server.Control(ctx, "")
	switch {
	case client.IsCode(err, wire.CodeForbidden):
		// who may read some towns alone may not ask about the world
		s.Unknown["pause"] = sentence(err)
	case err != nil:
		return nil, err
	}
	if err := s.askTowns(ctx, server); err != nil {
		return nil, err
	}
	id, err := server.WhoAmI(ctx)
	if err != nil {
		return nil, err
	}
	s.askAlerts(ctx, server, &id)
	s.readStreams(ctx, a, id.Role)
	s.askServers(ctx, server, id.Role)
	s.Healthy = len(s.Problems) == 0
	return s, nil
}

func (s *worldStatus) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

func (s *worldStatus) askTowns(ctx context.Context, server *client.Client) error {
	towns, err := listTowns(ctx, server)
	if err != nil {
		return err
	}
	s.Towns = len(towns)
	if len(towns) > maxDetails {
		s.Unknown["towns"] = fmt.Sprintf("what more than the first %d are doing", maxDetails)
	}
	for i := range towns {
		t := &towns[i]
		if t.Damaged {
			s.problem("the town %s answers TOWN_DAMAGED: handoffctl fsck says what to do",
				show(t.TownID))
		}
		if t.PendingRunID != "" {
			s.TownsPending = append(s.TownsPending, townPending{t.TownID, t.PendingRunID})
		}
		if t.AbsentSince != "" {
			s.PluginsAbsent = append(s.PluginsAbsent, absentPlugin{t.TownID, t.AbsentSince})
			s.problem("the town %s has had no plugin since %s", show(t.TownID), t.AbsentSince)
		}
		if !t.Paused {
			continue
		}
		r, err := server.Control(ctx, t.TownID)
		if err != nil {
			return err
		}
		if by := r.PausedBy; by != nil { // else it was resumed meanwhile
			s.TownsPaused = append(s.TownsPaused, townPause{t.TownID, by.ActorID, by.Reason, by.At})
		}
	}
	return nil
}

func (s *worldStatus) askAlerts(ctx context.Context, server *client.Client, id *messages.Identity) {
	s.Alerts = openAlerts{Count: map[runevents.Severity]int{}, Newest: []client.Alert{}}
	if !slices.Contains(id.Verbs, wire.AlertList) {
		s.Unknown["alerts"] = "the role " + id.Role + " may not list them"
		return
	}
	recovered, urgent, read := false, 0, 0
	for alert, err := range server.Alerts(ctx, false) { // the newest first
		if read++; err != nil || read > mostAlerts {
			if s.Alerts.More = true; err != nil {
				s.Unknown["alerts"] = sentence(err)
			}
			break
		}
		recovered = recovered || alert.Code == runevents.StorageRecovered
		if !s.countAlert(&alert) || alert.Code == runevents.StorageFailed && recovered {
			continue
		}
		if urgent++; urgent <= mostUrgent {
			s.problem("alert %d, %s of %s: %s", alert.Seq, show(string(alert.Code)), alert.At,
				show(alert.Message))
		}
	}
	if urgent > mostUrgent {
		s.problem("%s P1 of the last hour: handoffctl alerts list --open",
			counted.Of(urgent-mostUrgent, "more alert"))
	}
}

// countAlert counts an alert, and reports whether it is urgent.
func (s *worldStatus) countAlert(alert *client.Alert) bool {
	if alert.Acknowledged != nil {
		s.Alerts.Acknowledged++
		return false
	}
	s.Alerts.Count[alert.Severity]++
	if len(s.Alerts.Newest) < 3 {
		s.Alerts.Newest = append(s.Alerts.Newest, *alert)
	}
	at, err := time.Parse(time.RFC3339, alert.At)
	return alert.Severity == runevents.P1 && err == nil && time.Since(at) < urgentOf
}

// maySeeServers reports whether NATS lets a role ask for the statistics of the servers, and
// mayReadStreams whether it lets it look at all streams of the world.
func maySeeServers(role string) bool {
	return mayReadStreams(role) || role == string(access.Observer)
}

func mayReadStreams(role string) bool {
	return role == "" || role == string(access.Operator) || role == string(access.Engine)
}

// readStreams looks at the streams of the world.
func (s *worldStatus) readStreams(ctx context.Context, a *app, role string) {
	if !mayReadStreams(role) {
		s.Unknown["streams"] = "the role " + role + " may not look at them"
		return
	}
	nc, err := a.dialStreams("handoffctl status")
	if err != nil {
		s.Unknown["streams"] = sentence(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		s.Unknown["streams"] = sentence(err)
		return
	}
	for _, name := range wire.Streams(a.flags.World) {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			s.Unknown["streams"] = sentence(err)
			return
		}
		state := stream.CachedInfo().State
		s.StreamBytes += state.Bytes
		switch name {
		case wire.LogStream(a.flags.World):
			s.LogEnd = state.LastSeq
		case wire.DeadLetterStream(a.flags.World):
			s.DeadLetters = state.Msgs
		}
	}
	if s.DeadLetters > 0 {
		s.problem("%s: handoffctl deadletter list", counted.Of(s.DeadLetters, "dead letter"))
	}
}

// askServers asks the servers of the world how they are, until the index is at the log's former end.
func (s *worldStatus) askServers(ctx context.Context, server *client.Client, role string) {
	if !maySeeServers(role) {
		s.Unknown["servers"] = "the role " + role + " may not ask for statistics"
		return
	}
	for until := time.Now().Add(followWait); ; {
		servers, err := serversOf(ctx, server)
		if err != nil {
			s.Unknown["servers"] = sentence(err)
			return
		}
		s.Servers = servers
		behind := s.behind()
		if len(behind) == 0 {
			break
		}
		if time.Now().After(until) {
			for _, follower := range behind {
				s.problem("the %s of the log, which had %d", follower, s.LogEnd)
			}
			break
		}
		if backoff.Sleep(ctx, answersWait) != nil {
			return
		}
	}
	for i := range s.Servers {
		of := &s.Servers[i]
		s.Waiting += of.Stats.Waiting
		s.Alerts.Lost += of.Stats.AlertsLost
		if of.Stats.LogLost != "" {
			s.problem("the server %s judges nothing: %s", of.ID, of.Stats.LogLost)
		}
		if of.Stats.StorageFull != "" {
			s.problem("the server %s stores nothing: %s", of.ID, of.Stats.StorageFull)
		} else if disk := of.Stats.Disk; disk != nil && disk.Low() {
			s.problem("the disk of the server %s has %s free of %s, and below %s it stores nothing",
				of.ID,
				size(disk.Free), size(disk.Total), size(disk.Keep))
		}
	}
	if len(s.Servers) == 0 {
		s.Unknown["servers"] = "none has answered"
	} else if s.fullest() == nil {
		s.Unknown["disk"] = "the NATS that the servers have joined is another process; ask it " +
			"for its disk"
	}
}

// fullest returns the server with the least room on its disk, nil where none says how much it has.
func (s *worldStatus) fullest() *serverStatus {
	var least *serverStatus
	for i := range s.Servers {
		of := &s.Servers[i]
		if of.Stats.Disk != nil && (least == nil || of.Stats.Disk.Free < least.Stats.Disk.Free) {
			least = of
		}
	}
	return least
}

// followed returns the sequences of the log that the index and the bus have reached, by name; a
// world without a bus has the index alone.
func (s *worldStatus) followed() map[string]uint64 {
	reached := map[string]uint64{"index": 0}
	for i := range s.Servers {
		stats := &s.Servers[i].Stats
		reached["index"] = max(reached["index"], stats.Indexed)
		if stats.BusPublished != nil {
			reached["bus"] = max(reached["bus"], *stats.BusPublished)
		}
	}
	return reached
}

// behind returns those of followed that have not reached the end of the log.
func (s *worldStatus) behind() (behind []string) {
	for name, reached := range s.followed() {
		if reached < s.LogEnd {
			behind = append(behind, fmt.Sprintf("%s is at %d", name, reached))
		}
	}
	slices.Sort(behind)
	return behind
}

// versions returns the versions of the servers.
func (s *worldStatus) versions() []string {
	all := map[string]bool{}
	for i := range s.Servers {
		all[s.Servers[i].Version] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// serversOf returns the servers of the world that answer, in the order of their start.
func serversOf(ctx context.Context, server *client.Client) ([]serverStatus, error) {
	inbox := server.Conn.NewInbox()
	sub, err := server.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := server.Conn.PublishRequest("$SRV.STATS."+wire.ServiceName, inbox, nil); err != nil {
		return nil, err
	}
	found := []serverStatus{}
	for until := time.Now().Add(server.Timeout); ; {
		within, cancel := context.WithDeadline(ctx, until)
		msg, err := sub.NextMsgWithContext(within)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil {
			return nil, err
		}
		var stats struct {
			micro.ServiceIdentity
			Started   time.Time `json:"started"`
			Endpoints []struct {
				Name     string      `json:"name"`
				Requests int64       `json:"num_requests"`
				Nanos    int64       `json:"processing_time"`
				Data     serverStats `json:"data"`
			} `json:"endpoints"`
		}
		err = json.Unmarshal(msg.Data, &stats)
		if err != nil || stats.Metadata[wire.WorldMetadata] != server.World ||
			len(stats.Endpoints) == 0 {
			continue // of another world
		}
		of := serverStatus{ID: stats.ID, Version: stats.Version, Started: stats.Started,
			Stats: stats.Endpoints[0].Data}
		for _, e := range stats.Endpoints {
			of.verbs = append(of.verbs, verbCount{Verb: strings.ReplaceAll(e.Name, "-", "."),
				Requests: e.Requests, AverageMicros: e.Nanos / 1000 / max(e.Requests, 1)})
		}
		found = append(found, of)
		// all of them have got the request when one has answered
		until = time.Now().Add(answersWait)
	}
	slices.SortFunc(found, func(a, b serverStatus) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return found, nil
}
