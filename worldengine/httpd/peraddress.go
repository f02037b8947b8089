package httpd

import (
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"
)

// leastPerAddress is how many connections an address may have in any case: one browser opens
// several.
const leastPerAddress = 16

// warnEvery is how often the log says at most that connections are closed.
const warnEvery = 10 * time.Second

// AddressOf returns what clients are counted by: an IPv4 address, or the network of an IPv6 one,
// whose owner has them all.
func AddressOf(remote net.Addr) string {
	if remote == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return remote.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}

// perAddress is a listener that closes the connections of an address beyond as many as it may have.
type perAddress struct {
	net.Listener
	most, loopback int
	logger         *slog.Logger

	mu     sync.Mutex
	open   map[string]int // by address
	warned time.Time
}

// newPerAddress bounds a listener. most is 0 for a quarter of all connections, and no bound of
// loopback, where every local client, and a proxy, has one address.
func newPerAddress(inner net.Listener, most, all int, logger *slog.Logger) *perAddress {
	l := &perAddress{
		Listener: inner, most: most, loopback: most, logger: logger, open: map[string]int{},
	}
	if most == 0 {
		l.most, l.loopback = all/4, math.MaxInt
	}
	l.most, l.loopback = max(l.most, leastPerAddress), max(l.loopback, leastPerAddress)
	return l
}

// Accept implements net.Listener.
func (l *perAddress) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := AddressOf(conn.RemoteAddr())
		if l.take(address, conn.RemoteAddr()) {
			return &counted{Conn: conn, done: sync.OnceFunc(func() { l.release(address) })}, nil
		}
		_ = conn.Close() // its client sees that it is closed
	}
}

// take counts one connection more of an address, if it may have one.
func (l *perAddress) take(address string, remote net.Addr) bool {
	most := l.most
	if tcp, ok := remote.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		most = l.loopback
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address] < most {
		l.open[address]++
		return true
	}
	if time.Since(l.warned) > warnEvery {
		l.warned = time.Now()
		l.logger.Warn("a connection is closed: its address has as many as it may "+
			"(--max-connections-per-address)",
			"address", address, "connections", most)
	}
	return false
}

func (l *perAddress) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address]--; l.open[address] <= 0 {
		delete(l.open, address)
	}
}

// counted is a connection that its address has until it is closed, however often that is.
type counted struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}
