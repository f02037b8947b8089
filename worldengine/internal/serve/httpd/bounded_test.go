package httpd_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/httpd"
)

// get asks over a connection. One that is closed shows when it is read.
func get(s *httpd.Server, conn net.Conn) error {
	_, _ = io.WriteString(conn, request(s.URL(), "/"))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// The connection that has done nothing for the longest time is closed for a new one: of all, and of
// an address that has as many as it may.
func TestServer_ClosesTheIdlestConnection(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*httpd.Config){
		"of all":        func(c *httpd.Config) { c.MaxConnections = 20 },
		"of an address": func(c *httpd.Config) { c.MaxConnectionsPerAddress = 20 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, bound)
			conns := make([]net.Conn, 20)
			for i := range conns {
				conns[i] = dial(t, s.URL())
				require.NoError(t, get(s, conns[i]))
			}
			for i, conn := range conns {
				if i != 1 { // the server sees the idleness of a connection a moment after its client
					require.NoError(t, get(s, conn))
				}
			}
			require.NoError(t, get(s, dial(t, s.URL())))
			require.Error(t, get(s, conns[1]))
			require.NoError(t, get(s, conns[0]))
			require.NoError(t, get(s, conns[2]))
		})
	}
}

// Clients that take no answer do not keep a connection for good, and a WebSocket stays.
func TestServer_ClosesUnreadAnswers(t *testing.T) {
	t.Parallel()
	s, _, requests := bridged(t, func(c *httpd.Config) { c.MaxConnections = 16 })
	socket := dial(t, s.URL())
	_, err := io.WriteString(socket, request(s.URL(), "/nats", upgrade...))
	require.NoError(t, err)
	<-requests
	answering := make(chan struct{}, 16)
	s.Handle("/large", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answering <- struct{}{}
		_, _ = w.Write(make([]byte, 64<<20))
	}))
	for range 16 {
		_, err := io.WriteString(dial(t, s.URL()), request(s.URL(), "/large"))
		require.NoError(t, err)
		<-answering
	}
	for range 20 {
		require.NoError(t, get(s, dial(t, s.URL())))
	}
	answer, err := http.ReadResponse(bufio.NewReader(socket), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, answer.StatusCode)
	require.NoError(t, socket.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = socket.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded) // open, and silent
}

// By default an address has a quarter of the connections, and loopback, since a proxy may be there, all
// of them. One browser needs several.
func TestLimitedListener_DefaultOfAnAddress(t *testing.T) {
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
