package httpd

import (
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// AcceptedOf returns how many of all connections from an address a listener takes.
func AcceptedOf(address string, perAddress, all int) int {
	from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	l := newPerAddress(nil, perAddress, all, slog.New(slog.DiscardHandler))
	n := 0
	for n < all && l.take(AddressOf(from), from) {
		n++
	}
	return n
}

// ReadHeaderTimeout returns how long the head of a request may take.
func (s *Server) ReadHeaderTimeout() time.Duration { return s.http.ReadHeaderTimeout }
