package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func withHTTP(c *server.Config) { c.HTTP = "127.0.0.1:0" }

// browse connects to a server as its console does: over a WebSocket on the path /nats of HTTP.
func browse(srv *server.Server, options ...nats.Option) (*nats.Conn, error) {
	url := "ws" + strings.TrimPrefix(srv.HTTP(), "http")
	return nats.Connect(url, append(options, nats.ProxyPath("/nats"),
		nats.Timeout(20*time.Second))...)
}

// The zero value of Config.HTTP is no HTTP.
func TestNoHTTP(t *testing.T) {
	t.Parallel()
	require.Empty(t, start(t).HTTP())
}

// Without an access file a browser may what every client may: ask the verbs, and not reach the
// streams.
func TestBrowserWithoutAccess(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	srv := start(t, withHTTP, func(c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	nc, err := browse(srv)
	require.NoError(t, err)
	defer nc.Close()
	c := &client{t: t, nc: nc, world: wire.DefaultWorld}
	c.put(snapshot("t"), "")
	require.Equal(t, int64(15), c.town("t").DecisionEpoch)
	require.NotContains(t, log.String(), "level=WARN")
	require.NotContains(t, log.String(), "level=ERROR")
	js, err := nc.JetStream(nats.MaxWait(20 * time.Second))
	require.NoError(t, err)
	_, err = js.StreamInfo("WORLD_main_LOG")
	require.Error(t, err)
	require.False(t, c.mayPublish("runevents.v2.main.t.r"))
}

func TestBrowserSignsIn(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP, servertest.WithUsers(everybody()...))
	for name, word := range map[string]string{"operator": "wrong",
		"nobody": servertest.Password, "": ""} {
		_, err := browse(srv, nats.UserInfo(name, word))
		require.ErrorIs(t, err, nats.ErrAuthorization, name)
	}
	nc, err := browse(srv, nats.UserInfo("observer", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_observer"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	require.NoError(t, err)
	defer nc.Close()
	c := &client{t: t, nc: nc, world: wire.DefaultWorld}
	c.request("town.list", nil)
	require.False(t, c.mayPublish(wire.Subject("main", wire.ControlPause)))
}

// The WebSocket listener behind the bridge is no way around the TLS, and the certificate, that
// clients need.
func TestBrowserNeedsTheTLSOfClients(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	srv := start(t, withHTTP, func(c *server.Config) {
		c.Access = &access.Config{Users: everybody(), TLS: access.TLS{CertFile: cert, KeyFile: key,
			ClientCAFile: cert}}
	})
	require.Contains(t, srv.HTTP(), "https://")
	login := []nats.Option{nats.UserInfo("operator", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_operator")}
	_, err := browse(srv, append(login, nats.RootCAs(cert))...)
	require.Error(t, err)
	_, err = nats.Connect(srv.BehindBridge(), login...)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	nc, err := browse(srv, append(login, nats.RootCAs(cert), nats.ClientCert(cert, key))...)
	require.NoError(t, err)
	nc.Close()
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	trust := x509.NewCertPool()
	require.True(t, trust.AppendCertsFromPEM(pem))
	over := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust,
		MinVersion: tls.VersionTLS12}}}
	_, err = over.Get(srv.HTTP())
	require.Error(t, err) // no certificate
}

func TestWhoMayListenWithHTTP(t *testing.T) {
	t.Parallel()
	for listen, says := range map[string]string{
		"0.0.0.0:0": "--http 0.0.0.0:0", "nowhere": "--http must be HOST:PORT",
		"127.0.0.1:x": "--http has the port",
	} {
		_, err := server.Start(t.Context(),
			configure(func(c *server.Config) { c.HTTP, c.Data = listen, t.TempDir() }))
		require.ErrorContains(t, err, says)
		_, err = server.Check(t.Context(), configure(func(c *server.Config) {
			c.HTTP, c.Data = listen,
				t.TempDir()
		}))
		require.ErrorContains(t, err, says)
	}
	beyond := func(c *server.Config) { c.HTTP, c.Data = "0.0.0.0:0", t.TempDir() }
	insecure := func(c *server.Config) { c.InsecureListen = true }
	cert, key := certificate(t)
	encrypted := func(c *server.Config) {
		c.Access = &access.Config{Users: everybody(), TLS: access.TLS{CertFile: cert, KeyFile: key}}
	}
	// Passwords that go over HTTP need TLS there.
	_, err := server.Check(t.Context(), configure(servertest.WithUsers(everybody()...), beyond))
	require.ErrorIs(t, err, server.ErrPlainHTTP)
	require.ErrorContains(t, err, "--http 0.0.0.0:0")
	for _, changes := range [][]func(*server.Config){
		{beyond, encrypted}, {beyond, insecure},
		{beyond, insecure, servertest.WithUsers(everybody()...)},
		{servertest.WithUsers(everybody()...),
			func(c *server.Config) { c.HTTP, c.Data = "127.0.0.1:0", t.TempDir() }},
	} {
		_, err := server.Check(t.Context(), configure(changes...))
		require.NoError(t, err)
	}
}

// A server that has joined a NATS leads browsers to the WebSockets of that one, or says how to.
func TestBrowserOfAnExistingNATS(t *testing.T) {
	t.Parallel()
	hub := start(t, open, withHTTP)
	second := start(t, withHTTP, func(c *server.Config) { c.NATS = hub.URL() })
	answer, err := http.Get(second.HTTP() + "/nats")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	third := start(t, withHTTP, func(c *server.Config) {
		c.NATS, c.NATSWebSocket = hub.URL(),
			hub.BehindBridge()
	})
	nc, err := browse(third)
	require.NoError(t, err)
	defer nc.Close()
	c := &client{t: t, nc: nc, world: wire.DefaultWorld}
	c.request("town.list", nil)
	for _, wrong := range []string{"http://127.0.0.1:1", "ws://", "ws://user:word@127.0.0.1:1"} {
		_, err := server.Start(t.Context(), configure(withHTTP, func(c *server.Config) {
			c.NATS, c.NATSWebSocket = hub.URL(), wrong
		}))
		require.ErrorContains(t, err, "--nats-websocket")
		require.NotContains(t, err.Error(), "word@")
	}
}

// The WebSocket listener behind the bridge takes no browser: a page of any origin could find its
// port.
func TestNoOriginBehindTheBridge(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP)
	behind := "http" + strings.TrimPrefix(srv.BehindBridge(), "ws")
	for _, origin := range []string{"", "http://example.com", behind} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, behind, nil)
		require.NoError(t, err)
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": origin,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		reply, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, origin == "", reply.StatusCode == http.StatusSwitchingProtocols, origin)
	}
}

// An origin is exact, and pages connect over HTTP.
func TestCheck_WebSocketOrigin(t *testing.T) {
	t.Parallel()
	check := func(http string, origins ...string) error {
		_, err := server.Check(t.Context(), server.Config{Listen: "127.0.0.1:0", Data: t.TempDir(),
			HTTP: http, WebSocketOrigins: origins})
		return err
	}
	require.NoError(t, check("127.0.0.1:0", "https://agents.example", "http://127.0.0.1:3000"))
	for _, origin := range []string{"*", "agents.example", "https://agents.example/", "ws://a.example"} {
		require.ErrorContains(t, check("127.0.0.1:0", origin), "it must be the origin of a page")
	}
	require.ErrorContains(t, check("", "https://agents.example"), "needs --http")
}

// A console whose usual port another process has takes a free one, unless the port was asked for.
func TestHTTP_TakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := func(c *server.Config) { c.HTTP = taken.Addr().String() }
	_, err = server.Start(t.Context(), configure(at, func(c *server.Config) { c.Data = t.TempDir() }))
	require.ErrorContains(t, err, "address already in use")
	srv := start(t, at, func(c *server.Config) { c.HTTPOrFree = true })
	answer, err := http.Get(srv.HTTP() + "/livez")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}
