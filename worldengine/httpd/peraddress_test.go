package httpd_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/httpd"
)

// One address cannot take all connections, and gets one for each that it closes.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpd.Config) { c.MaxConnectionsPerAddress = 20 })
	get := func(conn net.Conn) error {
		// A connection that is closed shows when it is read.
		_, _ = io.WriteString(conn, request(s.URL(), "/"))
		_, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 OK")))
		return err
	}
	conns := make([]net.Conn, 20)
	for i := range conns {
		conns[i] = dial(t, s.URL())
		require.NoError(t, get(conns[i]))
	}
	require.Error(t, get(dial(t, s.URL())))
	require.NoError(t, conns[7].Close())
	require.Eventually(t, func() bool {
		return get(dial(t, s.URL())) == nil
	}, 30*time.Second, time.Millisecond)
	require.Error(t, get(dial(t, s.URL())))
}

// By default an address has a quarter of the connections, and loopback, where a proxy may be, all
// of them. One browser needs several.
func TestConnectionsOfAnAddressByDefault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address                  string
		perAddress, all, expects int
	}{
		{"192.0.2.1:1", 0, 1024, 256}, {"192.0.2.1:1", 0, 20, 16}, {"192.0.2.1:1", 1, 1024, 16},
		{"127.0.0.1:1", 0, 100, 100}, {"[::1]:1", 0, 100, 100}, {"127.0.0.1:1", 30, 1024, 30},
		{"[2001:db8::1]:1", 40, 1024, 40},
	} {
		require.Equal(t, c.expects, httpd.AcceptedOf(c.address, c.perAddress, c.all), "%+v", c)
	}
}

func TestAddressOf(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"192.0.2.7:4":     "192.0.2.7",
		"[2001:db8::1]:4": "2001:db8::/64", "[2001:db8::2]:5": "2001:db8::/64",
		"[::ffff:192.0.2.7]:4": "192.0.2.7",
	} {
		require.Equal(t, want, httpd.AddressOf(addr(at)))
	}
	require.Equal(t, "pipe", httpd.AddressOf(pipe{}))
	require.Empty(t, httpd.AddressOf(nil))
}

type pipe struct{}

func (pipe) Network() string { return "pipe" }
func (pipe) String() string  { return "pipe" }
