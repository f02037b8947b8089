package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// Whoever takes all connections of HTTP without a credential keeps no probe waiting, and ends no
// WebSocket.
func TestHTTP_HealthDuringFlood(t *testing.T) {
	t.Parallel()
	const all = server.DefaultMaxConnections
	loopback := func(int) string { return "127.0.0.1" }
	for name, flood := range map[string]struct {
		from func(i int) string
		says string // sent by each connection
		full bool   // an answer is read
	}{
		"idle":      {loopback, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", true},
		"silent":    {loopback, "", false},
		"half sent": {loopback, "GET /livez HTTP/1.1\r\nHost: 127", false},
		"addresses": {func(i int) string { return "127.0.0." + string(rune('1'+i%8)) },
			"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, withHTTP)
			nc, err := browse(srv)
			require.NoError(t, err)
			defer nc.Close()
			conns := make([]net.Conn, all)
			for i := range conns {
				conns[i] = visit(t, srv, flood.from(i))
				_, err := io.WriteString(conns[i], flood.says)
				require.NoError(t, err)
				if flood.full {
					answer, err := http.ReadResponse(bufio.NewReader(conns[i]), nil)
					require.NoError(t, err)
					require.NoError(t, answer.Body.Close())
				}
			}
			requireHealth(t, srv)
			c := &client{t: t, nc: nc, world: wire.DefaultWorld}
			c.request("town.list", nil)
			require.Zero(t, nc.Stats().Reconnects)
		})
	}
}

// The same holds while the connections that are closed come again as fast as they can.
func TestHTTP_HealthDuringReconnects(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP, func(c *server.Config) { c.MaxConnections = 256 })
	nc, err := browse(srv)
	require.NoError(t, err)
	defer nc.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var full sync.WaitGroup
	for range 256 + 64 {
		full.Add(1)
		held := sync.OnceFunc(full.Done)
		flood.Go(func() {
			defer held()
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", strings.TrimPrefix(srv.HTTP(), "http://"))
				if err != nil {
					continue
				}
				held()
				ends := context.AfterFunc(ctx, func() { conn.Close() })
				_, _ = io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: 127")
				_, _ = conn.Read(make([]byte, 1)) // until the server closes it
				conn.Close()
				ends()
			}
		})
	}
	full.Wait()
	for range 10 {
		requireHealth(t, srv)
	}
	c := &client{t: t, nc: nc, world: wire.DefaultWorld}
	c.request("town.list", nil)
	require.Zero(t, nc.Stats().Reconnects)
}

// visit connects to the HTTP of a server from an address of this machine.
func visit(t *testing.T, srv *server.Server, from string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: 20 * time.Second,
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(srv.HTTP(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

// requireHealth asks as probes do: each time over a connection of its own, and once more if the
// server closed that. A probe whose request is late on a busy machine is the oldest without one.
func requireHealth(t *testing.T, srv *server.Server) {
	t.Helper()
	probe := &http.Client{Timeout: 3 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		answer, err := probe.Get(srv.HTTP() + path)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			answer, err = probe.Get(srv.HTTP() + path)
		}
		require.NoError(t, err, path)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err, path)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
	}
}
