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
func (h *hosted) hearStandbys() error {
	h.service.Standbys = h.listStandbys
	_, err := h.server.conn.Subscribe(wire.StandbySubject(h.world), func(msg *nats.Msg) {
		var server messages.Server
		if json.Unmarshal(msg.Data, &server) == nil && server.ID != h.server.config.Service.ID {
			h.standbys.Store(server.ID, standby{server, time.Now()})
		}
	})
	return err
}

// listStandbys returns the other servers that stand by, in the order of their start.
func (h *hosted) listStandbys() []messages.Server {
	servers := []messages.Server{}
	for id, heard := range h.standbys.Range {
		of := heard.(standby)
		if time.Since(of.at) > standbyLasts {
			h.standbys.Delete(id)
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
func (h *hosted) tellStandby(since time.Time) {
	of := &h.server.config.Service
	server := messages.Server{ID: of.ID, Name: of.Name, Version: of.Version, Started: since}
	if x := h.index.Load(); x != nil {
		server.Indexed = x.Position()
	}
	if data, err := json.Marshal(server); err == nil {
		_ = h.server.conn.Publish(wire.StandbySubject(h.world), data)
	}
}
