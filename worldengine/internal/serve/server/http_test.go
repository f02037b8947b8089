package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func withHTTP(c *server.Config) { c.HTTP.Listen = "127.0.0.1:0" }

// browse connects to a server as its console does: over a WebSocket on the path /nats of HTTP.
func browse(srv *server.Server, options ...nats.Option) (*nats.Conn, error) {
	return dial("ws"+strings.TrimPrefix(srv.HTTP(), "http"), append(options, nats.ProxyPath("/nats"))...)
}

// A browser may do as every client may: without an access file ask the verbs, and not reach the
// streams; with one, sign in.
func TestBrowser(t *testing.T) {
	t.Parallel()
	require.Empty(t, start(t).HTTP(), "the zero value of Config.HTTP")
	log := &natstest.Buffer{}
	srv := start(t, withHTTP, logged(log))
	c := browser(t, srv)
	require.Equal(t, int64(15), c.putTown("t").DecisionEpoch)
	require.NotContains(t, log.String(), "level=WARN")
	require.NotContains(t, log.String(), "level=ERROR")
	js, err := c.nc.JetStream(nats.MaxWait(20 * time.Second))
	require.NoError(t, err)
	_, err = js.StreamInfo("WORLD_main_LOG")
	require.Error(t, err)
	require.False(t, c.mayPublish("runevents.v2.main.t.r"))

	srv = start(t, withHTTP, servertest.WithUsers(everybody()...))
	for name, word := range map[string]string{"operator": "wrong",
		"nobody": servertest.Password, "": ""} {
		_, err := browse(srv, nats.UserInfo(name, word))
		require.ErrorIs(t, err, nats.ErrAuthorization, name)
	}
	c = browser(t, srv, nats.UserInfo("observer", servertest.Password),
		nats.CustomInboxPrefix("_INBOX_observer"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	c.request("town.list", nil)
	require.False(t, c.mayPublish(wire.Subject("main", wire.ControlPause)))
}

// browser connects as a console does, until the test ends.
func browser(t *testing.T, srv *server.Server, options ...nats.Option) *client {
	t.Helper()
	nc, err := browse(srv, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &client{t: t, nc: nc, world: wire.DefaultWorld}
}

// get asks a server over HTTP, and returns the status and the body of the answer.
func get(t testing.TB, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// A server that has joined a NATS leads browsers to the WebSockets of that one, or says how to. The
// WebSocket listener behind the bridge takes no browser: a page of any origin could find its port.
func TestBrowser_ExistingNATS(t *testing.T) {
	t.Parallel()
	hub := start(t, open, withHTTP)
	join := func(webSocket string) func(*server.Config) {
		return func(c *server.Config) { c.External.URL, c.External.WebSocket = hub.URL(), webSocket }
	}
	status, _ := get(t, start(t, withHTTP, join("")).HTTP()+"/nats")
	require.Equal(t, http.StatusServiceUnavailable, status)
	browser(t, start(t, withHTTP, join(hub.BehindBridge()))).request("town.list", nil)
	for _, wrong := range []string{"http://127.0.0.1:1", "ws://", "ws://user:word@127.0.0.1:1"} {
		_, err := server.Start(t.Context(), configure(withHTTP, join(wrong)))
		require.ErrorContains(t, err, "--nats-websocket")
		require.NotContains(t, err.Error(), "word@")
	}
	behind := "http" + strings.TrimPrefix(hub.BehindBridge(), "ws")
	for _, origin := range []string{"", "http://example.com", behind} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, behind, nil)
		require.NoError(t, err)
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
			"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		if origin != "" {
			r.Header.Set("Origin", origin)
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
		_, err := server.Check(server.Config{
			Embedded: embedded.Config{Listen: "127.0.0.1:0", Data: t.TempDir()},
			HTTP:     server.HTTP{Listen: http, Origins: origins},
		})
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
	at := func(c *server.Config) { c.HTTP.Listen = taken.Addr().String() }
	_, err = server.Start(t.Context(), configure(at, func(c *server.Config) { c.Embedded.Data = t.TempDir() }))
	require.ErrorContains(t, err, "address already in use")
	status, _ := get(t, start(t, at, func(c *server.Config) { c.HTTP.OrFree = true }).HTTP()+"/livez")
	require.Equal(t, http.StatusOK, status)
}

func scrape(t testing.TB, srv *server.Server) string {
	t.Helper()
	_, body := get(t, strings.TrimSuffix(srv.HTTP(), "/")+"/metrics")
	return body
}

func scrapesSoon(t testing.TB, srv *server.Server, line string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(scrape(t, srv), line+"\n") },
		time.Minute, 20*time.Millisecond, "%s", line)
}

// The metrics have the counters of the parts: requests by verb and outcome, the disk, the streams;
// each attempt of a game by how it ended, and commands as long as they are applied; paused towns, also
// as a server that stands by counts them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newWorld(t, bindPlugin, withHTTP, open)
	other, free := beside(t, c.Server, bindPlugin), make(chan struct{})
	require.Contains(t, scrape(t, c.Server), `handoffd_stream_messages{stream="LOG",world="main"} 1`+"\n", "its settings")
	c.refuses("town.get", townRequest("nowhere"), "UNKNOWN_TOWN")
	c.refuses("handoff", `{}`, "SCHEMA_VALIDATION_FAILED")
	c.request("town.list", `{}`)
	host(t, c.Server, func(command *apply.Command, _ int) (apply.GameAnswer, bool) {
		if command.LogicalAttemptID == 1 {
			return apply.Refuse(command, "NOT_NOW", "", true), true
		}
		<-free
		return apply.Done(command), true
	})
	reply := c.sendLater(c.wall(c.putTown("t")))
	scrapesSoon(t, c.Server, `handoffd_commands_applying{world="main"} 1`)
	require.NotContains(t, scrape(t, c.Server), `outcome="applied"`)
	close(free)
	require.Equal(t, handoff.Executed, c.resultOf(<-reply).result.Status)
	c.signal("control.pause", townRequest("t"))
	for _, engine := range []*engine.Engine{other, beside(t, c.Server, bindPlugin)} {
		eventually(t, func() bool { return engine.Status().Stats().TownsPaused == 1 })
	}
	scrapesSoon(t, c.Server, `handoffd_towns_paused{world="main"} 1`)
	got := scrape(t, c.Server)
	for _, line := range []string{
		`handoffd_requests_total{code="UNKNOWN_TOWN",verb="town.get",world="main"} 1`,
		`handoffd_requests_total{code="SCHEMA_VALIDATION_FAILED",verb="handoff",world="main"} 1`,
		`handoffd_request_duration_seconds_count{verb="town.list"} 1`,
		`handoffd_apply_attempts_total{binding="plugin",outcome="PLUGIN_REJECTED",world="main"} 1`,
		`handoffd_apply_attempts_total{binding="plugin",outcome="applied",world="main"} 1`,
		`handoffd_apply_duration_seconds_count{binding="plugin",world="main"} 2`,
		`handoffd_commands_applying{world="main"} 0`, `handoffd_storage_full{world="main"} 0`, `handoffd_world_paused{world="main"} 0`,
	} {
		require.Contains(t, got, line+"\n")
	}
	require.Regexp(t, `handoffd_disk_free_bytes [1-9]`, got)
	require.Regexp(t, `handoffd_nats_connections [1-9]`, got)
	c.signal("control.resume", townRequest("t"))
	scrapesSoon(t, c.Server, `handoffd_towns_paused{world="main"} 0`)
}

// One scrape has all worlds of a server. A world that is removed leaves no series behind.
func TestMetrics_Worlds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withWorlds("a", "b"), allWorlds, withHTTP)
	serves(t, w.Server, "a")
	serves(t, w.Server, "b")
	w.switchWorld("a").executes(w.switchWorld("a").wall(w.switchWorld("a").putTown("t")))
	w.switchWorld("b").putTown("t")
	got := scrape(t, w.Server)
	for _, line := range []string{`handoffd_handoffs_total{status="executed",world="a"} 1`,
		`handoffd_handoffs_total{status="executed",world="b"} 0`, `handoffd_writer{world="b"} 1`,
		`handoffd_worlds{state="served"} 2`, `handoffd_stream_messages{stream="LOG",world="b"} 2`} {
		require.Contains(t, got, line+"\n")
	}
	call[messages.WorldRemoved](w.client, "worlds.remove", members{"world": "b"})
	eventually(t, func() bool { return !strings.Contains(scrape(t, w.Server), `world="b"`) })
	require.Contains(t, scrape(t, w.Server), `handoffd_writer{world="a"} 1`)
}

// A client that takes all connections of HTTP keeps no probe waiting, and ends no WebSocket, whether it
// leaves them idle or half sends a request.
func TestHTTP_HealthDuringFlood(t *testing.T) {
	t.Parallel()
	const all = 128
	srv := start(t, withHTTP, func(c *server.Config) { c.Embedded.MaxConnections = all })
	c := browser(t, srv)
	for i := range 2 * all {
		conn := rawTo(t, srv.HTTP())
		conn.write("GET /livez HTTP/1.1\r\nHost: 127")
		if i%2 == 0 {
			conn.write(".0.0.1\r\n\r\n")
			require.Contains(t, conn.line(), "200 OK")
		}
	}
	probe := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.HTTP()+path, nil)
		require.NoError(t, err)
		request.Host = "handoffd.games.svc.cluster.local:8480" // a probe may use any name
		answer, err := probe.Do(request)
		// The request of a probe on a busy machine may come after its grace.
		for try := 1; try < 3 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)); try++ {
			answer, err = probe.Do(request)
		}
		require.NoError(t, err, path)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
	}
	c.request("town.list", nil)
	require.Zero(t, c.nc.Stats().Reconnects)
}
