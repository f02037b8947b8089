package server_test

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
)

// from returns the option of a client that connects from a loopback address.
func from(address string) nats.Option {
	return nats.Dialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)},
		Timeout: 5 * time.Second})
}

// An address has no more connections than it is given, others have theirs, the server's own are not
// counted, and one that has ended makes room. The log says why a connection was refused.
func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	const most = 3
	said := new(natstest.Buffer)
	srv := start(t, func(c *server.Config) {
		c.MaxConnectionsPerAddress, c.Logger = most, slog.New(slog.NewTextHandler(said, nil))
	})
	var open []*nats.Conn
	for range most {
		nc, err := nats.Connect(srv.URL(), from("127.0.0.2"), nats.NoReconnect())
		require.NoError(t, err)
		defer nc.Close()
		open = append(open, nc)
	}
	for range 20 {
		_, err := nats.Connect(srv.URL(), from("127.0.0.2"))
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
	require.Contains(t, said.String(), "--max-connections-per-address")
	other, err := nats.Connect(srv.URL(), from("127.0.0.3"))
	require.NoError(t, err)
	defer other.Close()
	c := &client{t: t, nc: other, world: "main"}
	c.put(snapshot("t"), "")
	served(t, c, "t", 10)
	open[0].Close()
	require.Eventually(t, func() bool {
		nc, err := nats.Connect(srv.URL(), from("127.0.0.2"))
		if err != nil {
			return false
		}
		nc.Close()
		return true
	}, 20*time.Second, 10*time.Millisecond)
}

// Loopback, where all local clients have one address, may by default have all connections, and
// clients that come and go leave nothing behind that counts.
func TestConnectionsOfLoopback(t *testing.T) {
	t.Parallel()
	srv := start(t, func(c *server.Config) { c.MaxConnections = 16 })
	for range *connectionCount / 2 {
		var open []*nats.Conn
		for range 12 {
			nc, err := nats.Connect(srv.URL(), nats.NoReconnect())
			if err != nil { // NATS has not noticed all ends yet
				break
			}
			open = append(open, nc)
		}
		for _, nc := range open {
			nc.Close()
		}
	}
	require.Eventually(t, func() bool {
		nc, err := nats.Connect(srv.URL())
		if err != nil {
			return false
		}
		defer nc.Close()
		return (&client{t: t, nc: nc, world: "main"}).request("town.list", []byte(`{}`)) != nil
	}, 20*time.Second, 10*time.Millisecond)
}
