package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// discovery answers $SRV.PING, $SRV.INFO and $SRV.STATS by the NATS micro protocol. The micro
// library would answer on any reply subject, and gives its handlers no message whose headers could
// not be decoded.
type discovery struct {
	service  *Service
	identity micro.ServiceIdentity
	started  time.Time
}

// verbStats counts the requests of a verb.
type verbStats struct {
	mu    sync.Mutex
	stats micro.EndpointStats
}

// newDiscovery returns the discovery of the endpoints of a service, whose requests it counts from
// then on.
func newDiscovery(s *Service) *discovery {
	for _, e := range s.endpoints {
		e.stats = &verbStats{stats: micro.EndpointStats{
			Name:       strings.ReplaceAll(string(e.verb), ".", "-"),
			Subject:    wire.Subject(s.config.World, e.verb),
			QueueGroup: s.config.QueueGroup,
		}}
	}
	metadata := map[string]string{wire.WorldMetadata: s.config.World}
	if s.config.OperatorKey != "" {
		metadata[wire.OperatorKeyMetadata] = s.config.OperatorKey
	}
	return &discovery{service: s, started: time.Now().UTC(), identity: micro.ServiceIdentity{
		Name: wire.ServiceName, ID: s.config.ID, Version: s.config.Version, Metadata: metadata,
	}}
}

func (v *verbStats) count(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.NumRequests++
	v.stats.ProcessingTime += took
	v.stats.AverageProcessingTime = v.stats.ProcessingTime / time.Duration(v.stats.NumRequests)
}

func (v *verbStats) read() micro.EndpointStats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stats
}

// subscribe subscribes to the subjects of discovery.
func (d *discovery) subscribe(in *Entrance) error {
	name, id := d.identity.Name, d.identity.ID
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb: d.ping, micro.InfoVerb: d.info, micro.StatsVerb: d.stats,
	} {
		for _, whose := range [][2]string{{"", ""}, {name, ""}, {name, id}} {
			subject, err := micro.ControlSubject(verb, whose[0], whose[1])
			if err == nil {
				_, err = in.Requests.Subscribe(subject,
					func(msg *nats.Msg) { d.answer(in, msg, answer) })
			}
			if err != nil {
				return fmt.Errorf("service: %s: %w", subject, err)
			}
		}
	}
	return nil
}

func (d *discovery) answer(in *Entrance, msg *nats.Msg, body func() any) {
	if !d.service.mayAnswer(msg.Reply) {
		return
	}
	to := &incoming{entrance: in, inbox: msg.Reply}
	data, err := json.Marshal(body())
	if err != nil {
		d.service.fail(to, err)
		return
	}
	d.service.respond(to, &nats.Msg{Data: data})
}

func (d *discovery) ping() any {
	return micro.Ping{ServiceIdentity: d.identity, Type: micro.PingResponseType}
}

func (d *discovery) info() any {
	info := micro.Info{
		ServiceIdentity: d.identity, Type: micro.InfoResponseType,
		Description: "Authoritative world engine: takes execution-handoff.v1, " +
			"answers execution-result.v1",
	}
	for _, e := range d.service.endpoints {
		v := e.stats.read()
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: v.Name, Subject: v.Subject, QueueGroup: v.QueueGroup,
		})
	}
	return info
}

// stats returns the statistics of the endpoints, each with the statistics of the server as data.
func (d *discovery) stats() any {
	stats := micro.Stats{
		ServiceIdentity: d.identity, Type: micro.StatsResponseType, Started: d.started,
	}
	data, err := json.Marshal(d.service.stats())
	if err != nil {
		d.service.config.Logger.Error("the statistics cannot be written", "error", err)
		data = nil
	}
	for _, e := range d.service.endpoints {
		v := e.stats.read()
		v.Data = data
		stats.Endpoints = append(stats.Endpoints, &v)
	}
	return stats
}

// server returns the server with its statistics.
func (d *discovery) server() messages.Server {
	stats := d.service.stats()
	server := messages.Server{
		ID: d.identity.ID, Name: d.service.config.Name, Version: d.identity.Version,
		Started: d.started, Writer: true, Indexed: stats.Indexed, Stats: stats,
	}
	for _, e := range d.service.endpoints {
		v := e.stats.read()
		server.Verbs = append(server.Verbs, messages.VerbCount{
			Verb: e.verb, Requests: int64(v.NumRequests),
			AverageMicros: v.AverageProcessingTime.Microseconds(),
		})
	}
	return server
}
