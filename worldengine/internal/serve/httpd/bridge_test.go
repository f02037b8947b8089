package httpd_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/httpd"
)

var upgrade = []string{
	"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
}

// bridged starts a server with a bridge to a server of WebSockets that remembers the requests it
// gets.
func bridged(
	t *testing.T, change ...func(*httpd.Config),
) (s *httpd.Server, b *httpd.Bridge, requests chan *http.Request) {
	t.Helper()
	requests = make(chan *http.Request, 1)
	s = serve(t, change...)
	_, host, _ := strings.Cut(s.URL(), "://")
	b = newBridge("https://other.example", "https://Agents."+host)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: " +
			"Upgrade\r\nUpgrade: websocket\r\n\r\n"))
		requests <- r
		_, _ = conn.Read(make([]byte, 1)) // until the bridge closes it
		conn.Close()
	}))
	t.Cleanup(target.Close)
	at, err := url.Parse(target.URL)
	require.NoError(t, err)
	at.Scheme, at.Path = "ws", "/somewhere"
	b.SetTarget(at, nil)
	s.Handle("/nats", b)
	return s, b, requests
}

func newBridge(origins ...string) *httpd.Bridge {
	return httpd.NewBridge(2, origins, slog.New(slog.DiscardHandler))
}

// The NATS server sees connections of this machine only, so the bridge has to know whose they are.
func TestBridge_Client(t *testing.T) {
	t.Parallel()
	s, b, requests := bridged(t)
	conn := dial(t, s.URL())
	_, err := io.WriteString(conn,
		request(s.URL(), "/nats", append(upgrade, "Origin: "+s.URL(), "Cookie: a=b",
			"X-Forwarded-For: 192.0.2.9")...))
	require.NoError(t, err)
	r := <-requests
	require.Equal(t, "/somewhere", r.URL.Path)
	require.Empty(t, r.Header.Get("Cookie"))
	require.Equal(t, "127.0.0.1", r.Header.Get("X-Forwarded-For")) // and not what the client says
	client, forwarded := b.Client(addr(r.RemoteAddr))
	require.True(t, forwarded)
	require.Equal(t, conn.LocalAddr().String(), client.String())
	_, forwarded = b.Client(client)
	require.False(t, forwarded)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { _, still := b.Client(addr(r.RemoteAddr)); return !still },
		30*time.Second, time.Millisecond)
}

func TestBridge_Refuses(t *testing.T) {
	t.Parallel()
	s, b, _ := bridged(t)
	s.Handle("/nowhere", newBridge())
	away := newBridge()
	away.SetTarget(&url.URL{Scheme: "ws", Host: "127.0.0.1:1"}, nil)
	s.Handle("/away", away)
	_, forwarded := b.Client(nil)
	require.False(t, forwarded)
	for _, c := range []struct {
		path   string
		lines  []string
		status int
		says   string
	}{
		{"/nats", nil, http.StatusUpgradeRequired, "WebSocket"},
		{"/nats", append(upgrade, "Origin: http://evil.example"), http.StatusForbidden, "origin"},
		{"/nats", append(upgrade, "Origin: null"), http.StatusForbidden, "origin"},
		{"/nowhere", upgrade, http.StatusServiceUnavailable, "--nats-websocket"},
		{"/nowhere", nil, http.StatusServiceUnavailable, "--nats-websocket"},
		{"/away", upgrade, http.StatusBadGateway, "NATS does not take the WebSocket"},
	} {
		status, _, body := ask(t, s, c.path, "", c.lines...)
		require.Equal(t, c.status, status, c.path)
		require.Contains(t, body, c.says)
	}
}

// A WebSocket beyond as many as may be is refused, until one of them ends.
func TestBridge_Bounded(t *testing.T) {
	t.Parallel()
	s, _, requests := bridged(t)
	open := make([]net.Conn, 2)
	for i := range open {
		open[i] = dial(t, s.URL())
		_, err := io.WriteString(open[i], request(s.URL(), "/nats", upgrade...))
		require.NoError(t, err)
		<-requests
	}
	status, _, body := ask(t, s, "/nats", "", upgrade...)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "--max-connections")
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool {
		status, _, _ := ask(t, s, "/nats", "", upgrade...)
		return status == http.StatusSwitchingProtocols
	}, 30*time.Second, time.Millisecond)
}

// A page of the same name and port is of another origin if its scheme is another one. Behind a proxy
// that ends TLS, the proxy names the scheme.
func TestBridge_Origin(t *testing.T) {
	t.Parallel()
	encrypted := httptest.NewTLSServer(nil)
	t.Cleanup(encrypted.Close)
	for name, c := range map[string]struct {
		tls             *tls.Config
		origin, forward string
		status          int
	}{
		"http":                  {nil, "http://", "", http.StatusSwitchingProtocols},
		"https page":            {nil, "https://", "", http.StatusForbidden},
		"https page, proxy":     {nil, "https://", "https", http.StatusSwitchingProtocols},
		"https page, proxies":   {nil, "https://", "HTTPS, http", http.StatusSwitchingProtocols},
		"http page, proxy":      {nil, "http://", "https", http.StatusForbidden},
		"https":                 {encrypted.TLS, "https://", "", http.StatusSwitchingProtocols},
		"http page, TLS":        {encrypted.TLS, "http://", "", http.StatusForbidden},
		"no scheme":             {nil, "", "", http.StatusForbidden},
		"another host, proxy":   {nil, "https://evil.", "https", http.StatusForbidden},
		"another scheme, proxy": {nil, "wss://", "https", http.StatusForbidden},
		"allowed host":          {nil, "https://agents.", "", http.StatusSwitchingProtocols},
		"allowed host, http":    {nil, "http://agents.", "", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := bridged(t, func(config *httpd.Config) { config.TLS = c.tls })
			_, host, _ := strings.Cut(s.URL(), "://")
			var conn net.Conn = dial(t, host)
			if c.tls != nil {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			lines := append(slices.Clone(upgrade), "Origin: "+c.origin+host)
			if c.forward != "" {
				lines = append(lines, "X-Forwarded-Proto: "+c.forward)
			}
			_, err := io.WriteString(conn, request(host, "/nats", lines...))
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, c.status, answer.StatusCode)
			if c.status == http.StatusForbidden {
				body, err := io.ReadAll(answer.Body)
				require.NoError(t, err)
				require.Contains(t, string(body), "X-Forwarded-Proto")
			}
		})
	}
}
