package sharing

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/messages"
)

// An earlier program announces that it stands by for a world, once every half second, and lists the
// servers that do so. It counts a server as standing by for standbyTTL.
const standbyTTL = 2 * time.Second

// standby is a server that has announced that it stands by for a world, as an earlier program does.
type standby struct {
	messages.Server
	at time.Duration
}

// receiveStandby adds the announcement of an earlier program. Other servers make such announcements too,
// for an earlier writer: they announce themselves as well, and are listed once.
func (p *Placer) receiveStandby(msg *nats.Msg) {
	var server messages.Server
	if json.Unmarshal(msg.Data, &server) != nil || server.ID == p.self.ID {
		return
	}
	world := layout.StandbyWorld(msg.Subject)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.standbys[world] == nil {
		p.standbys[world] = map[string]standby{}
	}
	p.standbys[world][server.ID] = standby{server, p.now()}
}

// announceStandby announces that this server stands by for a world, to an earlier program.
func (p *Placer) announceStandby(world string) {
	data, err := json.Marshal(messages.Server{
		ID: p.self.ID, Name: p.self.Name, Version: p.self.Version, Started: p.self.Started,
		Indexed: p.self.Indexed[world],
	})
	if err == nil {
		_ = p.config.Conn.Publish(layout.StandbySubject(world), data)
	}
}

// Standbys returns the other servers that stand by for a world, in the order of their start.
func (p *Placer) Standbys(world string) []messages.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, servers := p.now(), map[string]messages.Server{}
	for id, s := range p.standbys[world] {
		if now-s.at < standbyTTL {
			servers[id] = s.Server
		} else {
			delete(p.standbys[world], id)
		}
	}
	for _, a := range p.view.Peers(now) {
		delete(servers, a.ID)
		if (a.All || slices.Contains(a.Worlds, world)) && !slices.Contains(a.Serves, world) {
			servers[a.ID] = messages.Server{ID: a.ID, Name: a.Name, Version: a.Version, Started: a.Started,
				Indexed: a.Indexed[world]}
		}
	}
	return slices.SortedFunc(maps.Values(servers), func(a, b messages.Server) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
}
