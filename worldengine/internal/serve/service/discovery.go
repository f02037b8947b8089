package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// identify names a world and its endpoints for discovery: $SRV.PING, $SRV.INFO and $SRV.STATS of the
// NATS micro protocol, in which each world is a service of its own. The micro library is not used: it
// would answer on any reply subject, and drops messages whose headers cannot be decoded.
func (w *ServedWorld) identify() {
	server := &w.service.config
	w.identity = micro.ServiceIdentity{
		Name: protocol.ServiceName, ID: server.ID, Version: server.Version,
		Metadata: map[string]string{protocol.WorldMetadata: w.config.World},
	}
	if server.OperatorKey != "" {
		w.identity.Metadata[protocol.OperatorKeyMetadata] = server.OperatorKey
	}
}

// nameCounts names the counts of the endpoints.
func (a *addressee) nameCounts() {
	for _, e := range a.service.endpoints {
		a.counts[e.number].stats = micro.EndpointStats{
			Name:    strings.ReplaceAll(string(e.Verb), ".", "-"),
			Subject: wire.Subject(a.token, e.Verb), QueueGroup: a.queueGroup,
		}
	}
}

// endpointCount counts the requests of an endpoint about one world.
type endpointCount struct {
	mu    sync.Mutex // guards stats
	stats micro.EndpointStats
}

func (e *endpointCount) count(took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.NumRequests++
	e.stats.ProcessingTime += took
	e.stats.AverageProcessingTime = e.stats.ProcessingTime / time.Duration(e.stats.NumRequests)
}

// endpointStats returns the statistics of an endpoint about the world. The endpoints of the verbs about
// worlds are the same in all of them.
func (w *ServedWorld) endpointStats(e *endpoint) micro.EndpointStats {
	a := w.addressee
	if worlds := w.service.worldsOfNATS(); worlds != nil && e.Verb.ManagesWorlds() {
		a = worlds
	}
	count := &a.counts[e.number]
	count.mu.Lock()
	defer count.mu.Unlock()
	return count.stats
}

// updateDiscovery subscribes to discovery while there are worlds. Without worlds, clients learn at once that
// nobody answers.
func (s *Service) updateDiscovery() error {
	s.discoveryMu.Lock()
	defer s.discoveryMu.Unlock()
	switch open := s.openWorlds.Load() > 0; {
	case open && s.discovery == nil:
		for i := range s.listeners {
			if err := s.subscribeDiscovery(&s.listeners[i]); err != nil {
				return err
			}
		}
	case !open:
		for _, sub := range s.discovery {
			_ = sub.Drain() // an error means that the connection is closed
		}
		s.discovery = nil
	}
	return nil
}

// subscribeDiscovery answers discovery in the account of a listener, once for each open world.
func (s *Service) subscribeDiscovery(listener *Listener) error {
	for verb, body := range map[micro.Verb]func(*ServedWorld) any{
		micro.PingVerb: (*ServedWorld).ping, micro.InfoVerb: (*ServedWorld).info,
		micro.StatsVerb: (*ServedWorld).statistics,
	} {
		for _, whose := range [][2]string{
			{"", ""}, {protocol.ServiceName, ""}, {protocol.ServiceName, s.config.ID},
		} {
			subject, err := micro.ControlSubject(verb, whose[0], whose[1])
			if err != nil {
				return fmt.Errorf("service: discovery: %w", err)
			}
			for _, on := range s.subjects(subject) {
				sub, err := listener.Requests.Subscribe(on, func(msg *nats.Msg) {
					s.answerDiscovery(listener, msg, on != subject, body)
				})
				if err != nil {
					return fmt.Errorf("service: %s: %w", on, err)
				}
				s.discovery = append(s.discovery, sub)
			}
		}
	}
	return nil
}

// answerDiscovery answers a request of discovery for each world that its sender may use: the others must
// look as if they did not exist. crossed says that the request came from the clients' account.
func (s *Service) answerDiscovery(listener *Listener, msg *nats.Msg, crossed bool, body func(*ServedWorld) any) {
	rights := s.config.Access.WorldRights(headersOf(msg), msg.Reply)
	if crossed {
		rights, _ = s.config.Access.ClientRights(headersOf(msg))
	}
	if rights.CheckVerb(wire.WhoAmI) != nil || !s.mayAnswer(msg.Reply) {
		return
	}
	for _, a := range s.list() {
		if a.world == nil || rights.World(a.token) != nil {
			continue
		}
		a.answer(&incoming{addressee: a, listener: listener, inbox: msg.Reply}, func() (any, error) {
			data, err := json.Marshal(body(a.world))
			return &nats.Msg{Data: data}, err
		})
	}
}

func (w *ServedWorld) ping() any {
	return micro.Ping{ServiceIdentity: w.identity, Type: micro.PingResponseType}
}

func (w *ServedWorld) info() any {
	info := micro.Info{
		ServiceIdentity: w.identity, Type: micro.InfoResponseType,
		Description: "Authoritative world engine: takes execution-handoff.v1, " +
			"answers execution-result.v1",
	}
	for _, e := range w.service.endpoints {
		counted := w.endpointStats(e)
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: counted.Name, Subject: counted.Subject, QueueGroup: counted.QueueGroup,
		})
	}
	return info
}

// statistics returns the statistics of the endpoints. The Data of each endpoint is the statistics
// of the whole server.
func (w *ServedWorld) statistics() any {
	stats := micro.Stats{
		ServiceIdentity: w.identity, Type: micro.StatsResponseType, Started: w.started,
	}
	counts := w.stats()
	if counts.LogLost != "" { // it names towns, and observers of other towns read the statistics
		counts.LogLost = commitlog.ErrLogLost.Error() + ": see the alert LOG_LOST"
	}
	data, err := json.Marshal(counts)
	if err != nil {
		w.config.Logger.Error("the statistics cannot be written", "error", err)
	}
	for _, e := range w.service.endpoints {
		counted := w.endpointStats(e)
		counted.Data = data
		stats.Endpoints = append(stats.Endpoints, &counted)
	}
	return stats
}

func (w *ServedWorld) server() messages.Server {
	stats := w.stats()
	server := messages.Server{
		ID: w.identity.ID, Name: w.service.config.Name, Version: w.identity.Version, Started: w.started,
		Writer: true, Indexed: stats.Indexed, Stats: stats,
	}
	for _, e := range w.service.endpoints {
		counted := w.endpointStats(e)
		server.Verbs = append(server.Verbs, messages.VerbCount{
			Verb: e.Verb, Requests: int64(counted.NumRequests),
			AverageMicros: counted.AverageProcessingTime.Microseconds(),
		})
	}
	return server
}
