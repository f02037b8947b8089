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

// discovery answers $SRV.PING, $SRV.INFO and $SRV.STATS as the NATS micro protocol has it. The
// service does not use that of the micro library, which answers on any reply subject, and gives its
// handlers no message whose headers could not be decoded.
type discovery struct {
	service  *Service
	identity micro.ServiceIdentity
	started  time.Time
	verbs    []*verbStats
}

// verbStats counts the requests of a verb.
type verbStats struct {
	info     micro.EndpointInfo
	mu       sync.Mutex
	requests int
	took     time.Duration
}

func newDiscovery(s *Service) *discovery {
	return &discovery{
		service: s, started: time.Now().UTC(),
		identity: micro.ServiceIdentity{
			Name: wire.ServiceName, ID: s.config.ID, Version: s.config.Version,
			Metadata: s.metadata(),
		},
	}
}

// add adds an endpoint, and gives it what counts its requests.
func (d *discovery) add(e *endpoint) {
	e.stats = &verbStats{info: micro.EndpointInfo{
		Name:    strings.ReplaceAll(string(e.verb), ".", "-"),
		Subject: wire.Subject(d.service.config.World, e.verb), QueueGroup: d.service.config.QueueGroup,
	}}
	d.verbs = append(d.verbs, e.stats)
}

func (v *verbStats) count(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests++
	v.took += took
}

func (v *verbStats) stats(data []byte) *micro.EndpointStats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return &micro.EndpointStats{
		Name: v.info.Name, Subject: v.info.Subject, QueueGroup: v.info.QueueGroup,
		NumRequests: v.requests, ProcessingTime: v.took,
		AverageProcessingTime: v.took / time.Duration(max(1, v.requests)), Data: data,
	}
}

// subscribe subscribes to the subjects of discovery. Call add for every endpoint before it.
func (d *discovery) subscribe(in *Entrance) error {
	for verb, answer := range map[micro.Verb]func() any{
		micro.PingVerb: d.ping, micro.InfoVerb: d.info, micro.StatsVerb: d.stats,
	} {
		name, id := d.identity.Name, d.identity.ID
		for _, of := range [][2]string{{"", ""}, {name, ""}, {name, id}} {
			subject, err := micro.ControlSubject(verb, of[0], of[1])
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
	for _, v := range d.verbs {
		info.Endpoints = append(info.Endpoints, v.info)
	}
	return info
}

// server returns the server with its statistics.
func (d *discovery) server() messages.Server {
	stats := d.service.stats()
	server := messages.Server{ID: d.identity.ID, Name: d.service.config.Name, Version: d.identity.Version, Started: d.started,
		Writer: true, Indexed: stats.Indexed, Stats: stats}
	for i, v := range d.verbs {
		v.mu.Lock()
		server.Verbs = append(server.Verbs, messages.VerbCount{
			Verb: d.service.endpoints[i].verb, Requests: int64(v.requests),
			AverageMicros: v.took.Microseconds() / int64(max(1, v.requests)),
		})
		v.mu.Unlock()
	}
	return server
}

// stats returns the same data for every endpoint: what the engine has done, and where it stands.
func (d *discovery) stats() any {
	stats := micro.Stats{
		ServiceIdentity: d.identity, Type: micro.StatsResponseType, Started: d.started,
	}
	data, err := json.Marshal(d.service.stats())
	if err != nil {
		d.service.config.Logger.Error("the statistics cannot be written", "error", err)
		data = nil
	}
	for _, v := range d.verbs {
		stats.Endpoints = append(stats.Endpoints, v.stats(data))
	}
	return stats
}
