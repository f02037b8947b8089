package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// identify names the service and its endpoints for discovery: $SRV.PING, $SRV.INFO and $SRV.STATS
// of the NATS micro protocol. The micro library is not used: it would answer on any reply subject,
// and drops messages whose headers cannot be decoded.
func (s *Service) identify() {
	for _, e := range s.endpoints {
		e.stats = micro.EndpointStats{
			Name:    strings.ReplaceAll(string(e.Verb), ".", "-"),
			Subject: wire.Subject(s.config.World, e.Verb), QueueGroup: s.config.QueueGroup,
		}
	}
	s.started, s.identity = time.Now().UTC(), micro.ServiceIdentity{
		Name: wire.ServiceName, ID: s.config.ID, Version: s.config.Version,
		Metadata: map[string]string{wire.WorldMetadata: s.config.World},
	}
	if s.config.OperatorKey != "" {
		s.identity.Metadata[wire.OperatorKeyMetadata] = s.config.OperatorKey
	}
}

func (e *endpoint) count(took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.NumRequests++
	e.stats.ProcessingTime += took
	e.stats.AverageProcessingTime = e.stats.ProcessingTime / time.Duration(e.stats.NumRequests)
}

func (e *endpoint) counted() micro.EndpointStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

func (s *Service) discoverable(in *Entrance) error {
	for verb, body := range map[micro.Verb]func() any{
		micro.PingVerb: s.ping, micro.InfoVerb: s.info, micro.StatsVerb: s.statistics,
	} {
		for _, whose := range [][2]string{
			{"", ""}, {s.identity.Name, ""}, {s.identity.Name, s.identity.ID},
		} {
			subject, err := micro.ControlSubject(verb, whose[0], whose[1])
			for _, on := range s.arrivals(subject) {
				if err == nil {
					_, err = in.Requests.Subscribe(on, func(msg *nats.Msg) {
						s.introduce(in, msg, on != subject, body)
					})
				}
			}
			if err != nil {
				return fmt.Errorf("service: %s: %w", subject, err)
			}
		}
	}
	return nil
}

// introduce answers a request of discovery, unless its sender may not use the world: to this sender
// the world must look as if it did not exist. crossed says that the request came from the clients'
// account.
func (s *Service) introduce(entrance *Entrance, msg *nats.Msg, crossed bool, body func() any) {
	to := &incoming{entrance: entrance, inbox: msg.Reply}
	to.rights = s.config.Access.OfWorld(headersOf(msg), to.inbox)
	if crossed {
		to.rights, _ = s.config.Access.OfClient(headersOf(msg))
	}
	refused := errors.Join(to.rights.World(s.config.World), to.rights.Verb(wire.WhoAmI))
	if refused != nil || !s.mayAnswer(to.inbox) {
		return
	}
	s.answer(to, func() (any, error) {
		data, err := json.Marshal(body())
		return &nats.Msg{Data: data}, err
	})
}

func (s *Service) ping() any {
	return micro.Ping{ServiceIdentity: s.identity, Type: micro.PingResponseType}
}

func (s *Service) info() any {
	info := micro.Info{
		ServiceIdentity: s.identity, Type: micro.InfoResponseType,
		Description: "Authoritative world engine: takes execution-handoff.v1, " +
			"answers execution-result.v1",
	}
	for _, e := range s.endpoints {
		v := e.counted()
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: v.Name, Subject: v.Subject, QueueGroup: v.QueueGroup,
		})
	}
	return info
}

// statistics returns the statistics of the endpoints. The Data of each endpoint is the statistics
// of the whole server.
func (s *Service) statistics() any {
	stats := micro.Stats{
		ServiceIdentity: s.identity, Type: micro.StatsResponseType, Started: s.started,
	}
	counts := s.stats()
	if counts.LogLost != "" { // it names towns, and observers of other towns read the statistics
		counts.LogLost = commitlog.ErrLogLost.Error() + ": see the alert LOG_LOST"
	}
	data, err := json.Marshal(counts)
	if err != nil {
		s.config.Logger.Error("the statistics cannot be written", "error", err)
	}
	for _, e := range s.endpoints {
		v := e.counted()
		v.Data = data
		stats.Endpoints = append(stats.Endpoints, &v)
	}
	return stats
}

func (s *Service) server() messages.Server {
	stats := s.stats()
	server := messages.Server{
		ID: s.config.ID, Name: s.config.Name, Version: s.config.Version, Started: s.started,
		Writer: true, Indexed: stats.Indexed, Stats: stats,
	}
	for _, e := range s.endpoints {
		v := e.counted()
		server.Verbs = append(server.Verbs, messages.VerbCount{
			Verb: e.Verb, Requests: int64(v.NumRequests),
			AverageMicros: v.AverageProcessingTime.Microseconds(),
		})
	}
	return server
}
