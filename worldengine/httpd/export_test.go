package httpd

import (
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// AcceptedOf returns how many of all connections from an address a listener takes before it closes
// one.
func AcceptedOf(address string, perAddress, all int) int {
	from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	l := newBounded(nil, all, perAddress, slog.New(slog.DiscardHandler))
	for n := range all {
		if _, idlest := l.admit(remote{from: from}); idlest != nil {
			return n
		}
	}
	return all
}

type remote struct {
	net.Conn
	from net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.from }

// SetReadHeader bounds how long the head of a request may take, before Serve.
func (s *Server) SetReadHeader(bound time.Duration) { s.http.ReadHeaderTimeout = bound }
