package httpd

import (
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// minIdleTimeout is how long a connection may do nothing before another one takes its place. It bounds how
// fast connections are closed and made again, so that a flood of them does not close one whose
// request is on its way.
const minIdleTimeout = 100 * time.Millisecond

// minPerAddress is how many connections an address may have in any case: one browser opens
// several.
const minPerAddress = 16

// AddressOf returns the address by which clients are counted: an IPv4 address, or the network of an
// IPv6 one, whose owner has all of it.
func AddressOf(remote net.Addr) string {
	if remote == nil {
		return ""
	}
	return countedAddress(remote.String())
}

// ClientAddress returns the address by which the client of a request is counted.
func ClientAddress(r *http.Request) string { return countedAddress(r.RemoteAddr) }

func countedAddress(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
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

// LogRefused logs that a request could not sign in, as NATS does of a connection: with the address and the
// name of the user, if it gives one, and never with a password or a token.
func LogRefused(logger *slog.Logger, r *http.Request, user string) {
	logger.Warn("a request over HTTP could not sign in: its credentials are wrong, or there were too many tries",
		"address", ClientAddress(r), "user", user, "path", r.URL.Path)
}

// ConnectionLimit returns how many connections the address of a client may have: perAddress or, by default, a
// quarter of all, and any number on loopback, since every local client, and a proxy, is there.
func ConnectionLimit(remote net.Addr, perAddress, all int) int {
	tcp, ok := remote.(*net.TCPAddr)
	switch {
	case perAddress > 0:
		return perAddress
	case ok && tcp.IP.IsLoopback():
		return math.MaxInt
	}
	return max(all/4, 1)
}

// limitedListener is a listener that bounds its connections, in all and of each address. To admit one more,
// it closes the one, of all or of the address, that has gone longest without a change: a client that
// holds connections keeps no request out. A WebSocket is not closed, but counts for its address.
type limitedListener struct {
	net.Listener
	limit, perAddress int
	logger            *slog.Logger

	mu   sync.Mutex
	open map[*countedConn]bool
}

// newLimitedListener bounds a listener. perAddress is 0 for the default of ConnectionLimit.
func newLimitedListener(inner net.Listener, limit, perAddress int, logger *slog.Logger) *limitedListener {
	return &limitedListener{
		Listener: inner, limit: limit, perAddress: perAddress, logger: logger, open: map[*countedConn]bool{},
	}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.waitForIdle()
		admitted, idlest := l.admit(conn)
		if idlest != nil {
			_ = idlest.Close()
		}
		if admitted != nil {
			return admitted, nil
		}
		_ = conn.Close() // its client sees that it is closed
	}
}

// waitForIdle waits, if there are as many connections as may be, until the idlest has been idle for minIdleTimeout.
func (l *limitedListener) waitForIdle() {
	var pause time.Duration
	l.mu.Lock()
	if idlest, open := l.count(""); open >= l.limit {
		pause = time.Until(idlest.changed.Add(minIdleTimeout))
	}
	l.mu.Unlock()
	time.Sleep(pause)
}

// admit counts a connection, unless its address has as many WebSockets as it may have connections:
// admitted is nil then. The connection idlest, unless nil, has to be closed for it.
func (l *limitedListener) admit(conn net.Conn) (admitted, idlest *countedConn) {
	remote := conn.RemoteAddr()
	address, most := AddressOf(remote), max(ConnectionLimit(remote, l.perAddress, l.limit), minPerAddress)
	l.mu.Lock()
	defer l.mu.Unlock()
	idlest, open := l.count(address)
	if open >= most {
		l.logger.Warn("a connection is closed: its address has as many as it may "+
			"(--max-connections-per-address)", "address", address, "connections", most)
		if idlest == nil {
			return nil, nil
		}
	} else if idlest, open = l.count(""); open >= l.limit {
		l.logger.Warn("connections are closed that do nothing: there are as many as may be "+
			"(--max-connections)", "connections", l.limit)
	} else {
		idlest = nil
	}
	delete(l.open, idlest)
	admitted = &countedConn{Conn: conn, listener: l, address: address, changed: time.Now()}
	l.open[admitted] = true
	return admitted, idlest
}

// count returns how many connections an address has, and the one that has gone longest without a
// change, nil if all are WebSockets. The address "" stands for all, without WebSockets.
func (l *limitedListener) count(address string) (idlest *countedConn, open int) {
	for c := range l.open {
		if c.address != address && (address != "" || c.socket) {
			continue
		}
		open++
		if !c.socket && (idlest == nil || c.changed.Before(idlest.changed)) {
			idlest = c
		}
	}
	return idlest, open
}

// changed implements the ConnState of an http.Server.
func (l *limitedListener) changed(conn net.Conn, state http.ConnState) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := conn.(*countedConn)
	c.changed, c.socket = time.Now(), c.socket || state == http.StateHijacked
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	listener *limitedListener
	address  string
	// Guarded by the listener.
	changed time.Time
	socket  bool
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
