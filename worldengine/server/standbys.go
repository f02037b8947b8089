package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// standbyLasts is how long a server counts as standing by after its last announcement. A standby
// announces itself every followEvery.
const standbyLasts = 4 * followEvery

// standbys are the servers of the world that have announced that they stand by. It is safe for
// concurrent use.
type standbys struct {
	mu    sync.Mutex
	heard map[string]standby
}

type standby struct {
	messages.Server
	at time.Time
}

func (s *standbys) take(msg *nats.Msg) {
	var server messages.Server
	if json.Unmarshal(msg.Data, &server) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil {
		s.heard = map[string]standby{}
	}
	s.heard[server.ID] = standby{server, time.Now()}
}

// list returns the servers that stand by, in the order of their start. It leaves out the server
// whose id is the argument without.
func (s *standbys) list(without string) []messages.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	servers := []messages.Server{}
	for id, of := range s.heard {
		if time.Since(of.at) > standbyLasts {
			delete(s.heard, id)
		} else if id != without {
			servers = append(servers, of.Server)
		}
	}
	slices.SortFunc(servers, func(a, b messages.Server) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return servers
}

// hearStandbys listens to the servers of the world that stand by.
func (s *Server) hearStandbys() error {
	_, err := s.conn.Subscribe(wire.StandbySubject(s.config.Engine.World), s.standbys.take)
	s.config.Service.Standbys = func() []messages.Server {
		return s.standbys.list(s.config.Service.ID)
	}
	return err
}

// tellStandby announces since when this server has stood by. The writer lists it.
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
