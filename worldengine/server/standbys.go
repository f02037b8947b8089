package server

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// standbyLasts is how long a server counts as standing by after its last announcement. A standby
// announces itself every followEvery.
const standbyLasts = 4 * followEvery

// standby is a server of the world that has announced that it stands by.
type standby struct {
	messages.Server
	at time.Time
}

// hearStandbys listens to the servers of the world that stand by.
func (s *Server) hearStandbys() error {
	s.config.Service.Standbys = s.listStandbys
	_, err := s.conn.Subscribe(wire.StandbySubject(s.config.Engine.World), func(msg *nats.Msg) {
		var server messages.Server
		if json.Unmarshal(msg.Data, &server) == nil && server.ID != s.config.Service.ID {
			s.standbys.Store(server.ID, standby{server, time.Now()})
		}
	})
	return err
}

// listStandbys returns the other servers that stand by, in the order of their start.
func (s *Server) listStandbys() []messages.Server {
	servers := []messages.Server{}
	for id, heard := range s.standbys.Range {
		of := heard.(standby)
		if time.Since(of.at) > standbyLasts {
			s.standbys.Delete(id)
			continue
		}
		servers = append(servers, of.Server)
	}
	slices.SortFunc(servers, func(a, b messages.Server) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return servers
}

// tellStandby announces since when this server has stood by. The writer lists this server.
func (s *Server) tellStandby(since time.Time) {
	server := messages.Server{
		ID: s.config.Service.ID, Name: s.config.Service.Name, Version: s.config.Service.Version,
		Started: since,
	}
	if x := s.index.Load(); x != nil {
		server.Indexed = x.Position()
	}
	if data, err := json.Marshal(server); err == nil {
		_ = s.conn.Publish(wire.StandbySubject(s.config.Engine.World), data)
	}
}
