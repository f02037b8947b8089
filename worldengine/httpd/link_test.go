package httpd

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection that is closed again does not make the bridge forget a later one, which has got its
// port.
func TestALinkIsClosedOnce(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	b := NewBridge(2, slog.New(slog.DiscardHandler))
	first := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1"))
	later := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.2:2"))
	link, err := b.remember(conn, first)
	require.NoError(t, err)
	client, forwarded := b.Client(conn.LocalAddr())
	require.Equal(t, []any{first, true}, []any{client, forwarded})
	require.NoError(t, link.Close())
	_, forwarded = b.Client(conn.LocalAddr())
	require.False(t, forwarded)

	_, err = b.remember(&nowhere{Conn: conn}, later)
	require.NoError(t, err)
	require.NoError(t, link.Close())
	client, forwarded = b.Client(conn.LocalAddr())
	require.Equal(t, []any{later, true}, []any{client, forwarded})
}

// nowhere is a connection from the same port.
type nowhere struct{ net.Conn }
