package embedded

import (
	"net"
	"sync"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/internal/serve/httpd"
)

// addressBound bounds the connections that have signed in from one address (for IPv6 one /64
// network). NATS does not report when a connection ends, so ended connections are removed when an
// address is full. Connections that have not signed in are not known here: loginTimeout bounds each
// of them. It is safe for concurrent use.
type addressBound struct {
	nats   *natsserver.Server
	config *Config

	mu    sync.Mutex
	ids   map[string][]uint64 // by address, of connections that signed in
	total int
}

// full reports whether an address has all the connections that it may have; it is called before
// anything costly. A connection within the process has no address, and is not bounded.
func (p *addressBound) full(remote net.Addr) bool {
	if !hasIP(remote) {
		return false
	}
	address := httpd.AddressOf(remote)
	most := httpd.ConnectionLimit(remote, p.config.MaxConnectionsPerAddress, p.config.MaxConnections)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids[address]) >= most {
		p.prune(address)
	}
	if len(p.ids[address]) < most {
		return false
	}
	p.config.Logger.Warn("a connection is refused: its address has as many as it may "+
		"(--max-connections-per-address)", "address", address, "connections", most)
	return true
}

func (p *addressBound) add(remote net.Addr, id uint64) {
	if !hasIP(remote) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	address := httpd.AddressOf(remote)
	p.ids[address] = append(p.ids[address], id)
	if p.total++; p.total%maxRemembered == 0 { // clients that come and go leave ids behind
		for address := range p.ids {
			p.prune(address)
		}
	}
}

// maxRemembered is the number of connections after which ended ones are removed at all addresses.
const maxRemembered = 4096

// prune forgets the connections of an address that have ended. p.mu is locked.
func (p *addressBound) prune(address string) {
	var open []uint64
	for _, id := range p.ids[address] {
		if p.nats.GetClient(id) != nil {
			open = append(open, id)
		}
	}
	if p.ids[address] = open; open == nil {
		delete(p.ids, address)
	}
}

// hasIP reports whether a client is not within this process.
func hasIP(remote net.Addr) bool {
	_, ok := remote.(*net.TCPAddr)
	return ok
}
