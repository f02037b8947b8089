package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/httpd"
)

// serve starts a server that says hello on / and ends with the test.
func serve(t *testing.T, change ...func(*httpd.Config)) *httpd.Server {
	t.Helper()
	s := listen(t, change...)
	s.Serve()
	return s
}

// listen returns the server of serve, which does not serve yet.
func listen(t *testing.T, change ...func(*httpd.Config)) *httpd.Server {
	t.Helper()
	config := httpd.Config{Listen: "127.0.0.1:0", MaxConnections: 1024,
		Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&config)
	}
	s, err := httpd.Listen(config)
	require.NoError(t, err)
	s.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

// ask sends a request with headers, "Name: value", and returns the answer. An empty host is the
// server's own.
func ask(
	t *testing.T, s *httpd.Server, path, host string, lines ...string,
) (int, http.Header, string) {
	t.Helper()
	if host == "" {
		host = s.URL()
	}
	conn := dial(t, s.URL())
	_, err := io.WriteString(conn, request(host, path, lines...))
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header, string(text)
}

func TestServer_ForbidsOtherOrigins(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/", "/missing"} {
		_, header, _ := ask(t, s, path, "")
		require.Contains(t, header.Get("Content-Security-Policy"),
			"default-src 'none'; script-src 'self'")
		require.Contains(t, header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.NotContains(t, header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "DENY", header.Get("X-Frame-Options"))
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
	}
}

// A web site whose name leads to this machine must not become the console's own origin.
func TestServer_OnlyAddressesAreHosts(t *testing.T) {
	t.Parallel()
	closed, open := serve(t), serve(t, func(c *httpd.Config) { c.AnyHost = true })
	for host, own := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8480": true, "localhost": true,
		"localhost:8480": true, "[::1]:8480": true,
		"[::1]": true, "192.0.2.7": true,
		"evil.example": false, "127.0.0.1.evil.example:8480": false,
		"localhost.evil.example": false,
	} {
		status, _, body := ask(t, closed, "/", host)
		if own {
			require.Equal(t, 200, status, host)
		} else {
			require.Equal(t, http.StatusMisdirectedRequest, status, host)
			require.Contains(t, body, "--access")
		}
		status, _, _ = ask(t, open, "/", host)
		require.Equal(t, 200, status, host)
	}
}

// Monitors reach a probe by any name of the server and by none, also with OPTIONS, and nothing else.
func TestServer_ProbesOfAnyHost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.HandleProbe("/readyz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok")
	}))
	for _, head := range []string{
		"GET /readyz HTTP/1.0", "HEAD /readyz HTTP/1.0", "OPTIONS /readyz HTTP/1.0",
		"GET /readyz HTTP/1.1\r\nHost: handoffd.games.svc.cluster.local:8480",
		"GET /readyz HTTP/1.1\r\nHost: handoffd:8480\r\nConnection: close",
	} {
		for path, want := range map[string]int{
			"/readyz": http.StatusOK, "/readyz/": http.StatusMisdirectedRequest,
			"/": http.StatusMisdirectedRequest,
		} {
			conn := dial(t, s.URL())
			_, err := io.WriteString(conn, strings.Replace(head, "/readyz", path, 1)+"\r\n\r\n")
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, "%s of %s", path, head)
		}
	}
}

func TestServer_BoundsRequests(t *testing.T) {
	t.Parallel()
	s := serve(t)
	answer, err := http.Post(s.URL(), "text/plain", strings.NewReader("a body"))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
	large, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	require.NoError(t, err)
	large.Header.Set("X-Large", strings.Repeat("x", 32<<10))
	// Or the connection is gone before the answer is read.
	if answer, err = http.DefaultClient.Do(large); err == nil {
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
	}

	// Half a request is given up.
	s = listen(t)
	s.SetReadHeader(500 * time.Millisecond)
	s.Serve()
	conn := dial(t, s.URL())
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost:")
	require.NoError(t, err)
	_, err = io.ReadAll(conn)
	require.NoError(t, err) // the server has closed it
}

func TestListen_TakenPort(t *testing.T) {
	t.Parallel()
	first := serve(t)
	_, err := httpd.Listen(httpd.Config{Listen: strings.TrimPrefix(first.URL(), "http://")})
	require.ErrorContains(t, err, "--http")
	require.ErrorContains(t, err, "address already in use")
}

// dial connects to a server without a word.
func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 30*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// request returns the bytes of a request to the server at url.
func request(url, path string, lines ...string) string {
	lines = append([]string{"GET " + path + " HTTP/1.1", "Host: " +
		strings.TrimPrefix(url, "http://")}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func addr(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

// A server that listens on all addresses is reached at loopback, however that is written.
func TestFromHere(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		":8480": "127.0.0.1:8480", "0.0.0.0:8480": "127.0.0.1:8480", "[::]:8480": "127.0.0.1:8480",
		"[::1]:8480": "[::1]:8480", "localhost:8480": "localhost:8480",
	} {
		require.Equal(t, want, httpd.LocalAddress(address))
	}
}
