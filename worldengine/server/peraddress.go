package server

import (
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/httpd"
)

// perAddress bounds the connections that have signed in from one address (for IPv6 one /64
// network). NATS does not report when a connection ends, so ended connections are removed when an
// address is full. Connections that have not signed in are not known here: loginTimeout bounds each
// of them. It is safe for concurrent use.
type perAddress struct {
	nats     *natsserver.Server
	most     int // of an address
	loopback int // of a loopback address
	logger   *slog.Logger

	mu    sync.Mutex
	ids   map[string][]uint64 // by address, of connections that signed in
	total int
}

// newPerAddress returns the bound of a configuration. By default it is a quarter of all
// connections, and all of them for loopback, since every local client has that address.
func newPerAddress(config *Config) *perAddress {
	p := &perAddress{
		most: config.MaxConnectionsPerAddress, loopback: config.MaxConnectionsPerAddress,
		logger: config.Logger, ids: map[string][]uint64{},
	}
	if p.most == 0 {
		p.most, p.loopback = max(config.MaxConnections/4, 1), math.MaxInt
	}
	return p
}

// full reports whether an address has all the connections that it may have; it is called before
// anything costly. A connection within the process has no address, and is not bounded.
func (p *perAddress) full(remote net.Addr) bool {
	ip, ok := ipOf(remote)
	if !ok {
		return false
	}
	address, most := httpd.AddressOf(remote), p.most
	if ip.IsLoopback() {
		most = p.loopback
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids[address]) >= most {
		p.prune(address)
	}
	if len(p.ids[address]) < most {
		return false
	}
	p.logger.Warn("a connection is refused: its address has as many as it may "+
		"(--max-connections-per-address)", "address", address, "connections", most)
	return true
}

// add counts a connection that has signed in.
func (p *perAddress) add(remote net.Addr, id uint64) {
	if _, ok := ipOf(remote); !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	address := httpd.AddressOf(remote)
	p.ids[address] = append(p.ids[address], id)
	if p.total++; p.total%mostRemembered == 0 { // clients that come and go leave ids behind
		for address := range p.ids {
			p.prune(address)
		}
	}
}

// mostRemembered is the number of connections after which ended ones are removed at all addresses.
const mostRemembered = 4096

// prune forgets the connections of an address that have ended. p.mu is held.
func (p *perAddress) prune(address string) {
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

// ipOf returns the IP of a remote address; ok is false if it has none.
func ipOf(remote net.Addr) (ip netip.Addr, ok bool) {
	if remote == nil {
		return netip.Addr{}, false
	}
	at, err := netip.ParseAddrPort(remote.String())
	return at.Addr().Unmap(), err == nil
}
