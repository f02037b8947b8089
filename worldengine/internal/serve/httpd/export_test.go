package httpd

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AcceptedOf returns how many of all connections from an address a listener takes before it closes
// one.
func AcceptedOf(address string, perAddress, all int) int {
	from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
	l := newLimitedListener(nil, all, perAddress, slog.New(slog.DiscardHandler))
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

// A connection that is closed again does not make the bridge forget a later one, which has got its
// port.
func TestNatsConn_ClosedOnce(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	b := NewBridge(2, nil, slog.New(slog.DiscardHandler))
	first := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
	later := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.2:2"))
	link := b.remember(conn, first)
	client, forwarded := b.Client(conn.LocalAddr())
	require.Equal(t, []any{first, true}, []any{client, forwarded})
	require.NoError(t, link.Close())
	_, forwarded = b.Client(conn.LocalAddr())
	require.False(t, forwarded)

	b.remember(&nowhere{Conn: conn}, later)
	require.NoError(t, link.Close())
	client, forwarded = b.Client(conn.LocalAddr())
	require.Equal(t, []any{later, true}, []any{client, forwarded})
}

// nowhere is a connection from the same port.
type nowhere struct{ net.Conn }

// A connection of an address with as many WebSockets as it may have connections is refused.
func TestLimitedListener_WebSocketsOfAnAddress(t *testing.T) {
	t.Parallel()
	l := newLimitedListener(nil, 100, minPerAddress, slog.New(slog.DiscardHandler))
	from := func(address string) remote {
		return remote{from: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
	}
	for range minPerAddress {
		admitted, idlest := l.admit(from("192.0.2.1:1"))
		require.NotNil(t, admitted)
		require.Nil(t, idlest)
		l.changed(admitted, http.StateHijacked)
	}
	admitted, idlest := l.admit(from("192.0.2.1:1"))
	require.Nil(t, admitted)
	require.Nil(t, idlest)
	admitted, _ = l.admit(from("192.0.2.2:1"))
	require.NotNil(t, admitted)
}
