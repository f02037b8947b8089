package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	engineclient "worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/secret"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/serve/mcp/mcptest"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// signedIn adds a header Authorization to the requests of a host.
type signedIn struct{ authorization string }

func (s signedIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.authorization != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", s.authorization)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func basic(name, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(name, password)
	return r.Header.Get("Authorization")
}

// hostVersion is the version of the protocol that hosts speak.
const hostVersion = "2025-11-25"

// startModel begins a session at an address of a server.
func startModel(t testing.TB, url, authorization string) (*mcptest.Model, error) {
	return mcptest.Connect(t, &sdk.StreamableClientTransport{Endpoint: url,
		HTTPClient: &http.Client{Transport: signedIn{authorization}}}, hostVersion)
}

func mustModel(t testing.TB, url, authorization string) *mcptest.Model {
	t.Helper()
	m, err := startModel(t, url, authorization)
	require.NoError(t, err)
	return m
}

func talk(townID string) members {
	return members{"townId": townID, "type": "TOWNSFOLK_TALK", "argument": "casual", "reason": "r"}
}

// A host reaches the world by a URL, on this machine, without users and without a program.
func TestMCP(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP)
	connect(t, srv).putTown("t")
	for _, path := range []string{"/mcp?actor=mayor-1", "/mcp/main?actor=mayor-1"} {
		m := mustModel(t, srv.HTTP()+path, "")
		require.Equal(t, "2025-11-25", m.InitializeResult().ProtocolVersion)
		uri := "worldengine://main/towns/t"
		require.NoError(t, m.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}))
		require.Contains(t, m.Ok("propose", talk("t")), `"EXECUTED"`)
		select {
		case got := <-m.Updated:
			require.Equal(t, uri, got)
		case <-time.After(time.Minute):
			require.Fail(t, "no notice of the change")
		}
		require.Contains(t, m.Ok("recall", townRequest("t")), "mayor-1 gave the townsfolk a casual talk.")
	}
	got, text := status(t, http.MethodPost, srv.HTTP()+"/mcp/other", initialize)
	require.Equal(t, http.StatusNotFound, got)
	require.Contains(t, text, "the worlds are main")
}

// machineCode finds the machine code at the beginning of an error's text.
var machineCode = regexp.MustCompile(`^[A-Z_]+`)

// A session has the rights of its user: each tool gets the same answer as over NATS.
func TestMCP_Rights(t *testing.T) {
	users := []access.User{
		servertest.Person(wire.Operator), servertest.Person(wire.Plugin), servertest.Person(wire.Approver),
		servertest.Person(wire.Observer), servertest.Person(wire.Agent),
		servertest.Person(wire.Agent, limitTowns("a"), limitActors("mayor-a"), called("agent-a")),
		servertest.Person(wire.Agent, func(u *access.User) { u.Read = []string{"a"} }, called("reader-a")),
		servertest.Person(wire.Observer, func(u *access.User) { u.Read = []string{"b"} }, called("observer-b")),
	}
	runOnBoth(t, users, func(t *testing.T, w *world) {
		operator := w.connectUser(users[0])
		operator.putTown("a")
		operator.putTown("b")
		run := operator.executes(operator.talk(operator.town("a"))).runID
		for _, u := range users {
			t.Run(u.Name, func(t *testing.T) {
				t.Parallel()
				over := modelOverNATS(t, w, u)
				byURL := mustModel(t, w.Server.HTTP()+"/mcp?actor=mayor-a", basic(u.Name, servertest.Password))
				for _, town := range []string{"a", "b", "unknown"} {
					for tool, arguments := range map[string]members{
						"read_town": townRequest(town), "recall": townRequest(town), "list_proposals": townRequest(town), "dry_run": talk(town),
						"read_run": {"runId": run}, "list_towns": {}, "read_result": {"townId": town,
							"idempotencyKey": "proposal_" + strings.Repeat("0", 64)},
					} {
						proposes := tool == "dry_run" || tool == "list_proposals"
						if proposes && town != "a" && u.Role != wire.Agent && u.Role != wire.Operator {
							continue // the client waits 2 s before it looks whether NATS has refused
						}
						want, wantFailed := over.Call(tool, arguments)
						got, failed := byURL.Call(tool, arguments)
						require.Equal(t, wantFailed, failed, "%s %s: %s and %s", tool, town, want, got)
						if failed && machineCode.FindString(want) == "PERMISSION_DENIED" { // NATS refuses, not the service
							require.Contains(t, got, "FORBIDDEN (403)", tool)
							continue
						}
						require.Equal(t, want, got, "%s %s", tool, town)
					}
				}
			})
		}
	}, withHTTP)
}

func called(name string) func(*access.User) { return func(u *access.User) { u.Name = name } }

// modelOverNATS is a session of a user whose requests go over a NATS connection of the user.
func modelOverNATS(t *testing.T, w *world, u access.User) *mcptest.Model {
	t.Helper()
	nc := connected(t, w.Server.URL(), nats.UserInfo(u.Name, servertest.Password), nats.CustomInboxPrefix(u.InboxPrefix()),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	engine := engineclient.New(nc, "")
	engine.Timeout = time.Minute
	here, there := sdk.NewInMemoryTransports()
	tools := mcp.New(mcp.Config{Client: engine, Actor: "mayor-a"})
	_, err := tools.Server().Connect(context.Background(), there, nil)
	require.NoError(t, err)
	m, err := mcptest.Connect(t, here, hostVersion)
	require.NoError(t, err)
	return m
}

// status sends a request and returns the status and the body of the answer.
func status(t testing.TB, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, header := range headers {
		name, value, given := strings.Cut(header, ": ")
		if !given {
			continue
		}
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// openModelSession begins a session, and returns its header.
func openModelSession(t testing.TB, url string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return "Mcp-Session-Id: " + answer.Header.Get("Mcp-Session-Id")
}

// Pages of other origins, and names that lead here, reach nothing.
func TestMCP_Rebinding(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP, func(c *server.Config) { c.HTTP.Origins = []string{"https://agents.example"} })
	url := srv.HTTP() + "/mcp"
	for header, want := range map[string]int{
		"Origin: https://evil.example": http.StatusForbidden, "Origin: null": http.StatusForbidden,
		"Host: evil.example": http.StatusMisdirectedRequest, "Host: 127.0.0.1.evil.example": http.StatusMisdirectedRequest,
		"Origin: " + srv.HTTP(): http.StatusOK, "Origin: https://agents.example": http.StatusOK, "Host: localhost:1": http.StatusOK,
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			got, text := status(t, method, url, initialize, header)
			if want == http.StatusOK && method != http.MethodPost {
				require.Equal(t, http.StatusBadRequest, got, "%s %s: %s", method, header, text)
				continue
			}
			require.Equal(t, want, got, "%s %s: %s", method, header, text)
		}
	}
	got, _ := status(t, http.MethodOptions, url, "", "Origin: https://agents.example")
	require.Equal(t, http.StatusNoContent, got)
	got, _ = status(t, http.MethodOptions, url, "", "Origin: https://evil.example")
	require.Equal(t, http.StatusForbidden, got)
}

// Only users sign in, with a password or a token, and another user cannot use a session.
func TestMCP_SignIn(t *testing.T) {
	t.Parallel()
	token, hash := access.NewToken()
	bot := access.User{Name: "bot", Role: wire.Agent, Tokens: hashes(hash), Actors: []string{"mayor-9"}}
	srv := start(t, withHTTP, servertest.WithUsers(servertest.Person(wire.Operator), servertest.Person(wire.Agent), bot))
	w := connectUser(t, srv.URL(), servertest.Person(wire.Operator))
	w.putTown("t")
	url := srv.HTTP() + "/mcp"
	for authorization, want := range map[string]int{
		"": 401, "Basic": 401, "Bearer": 401, "Bearer " + hash: 401, "Bearer " + token + "x": 401, "Digest x": 401,
		basic("agent", "wrong"): 401, basic("nobody", servertest.Password): 401, basic("bot", ""): 401, basic("bot", token): 401,
		basic("agent", servertest.Password): 200, "Bearer " + token: 200, "bearer " + token: 200,
	} {
		got, text := status(t, http.MethodPost, url, initialize, "Authorization: "+authorization)
		require.Equal(t, want, got, "%q: %s", authorization, text)
	}
	m := mustModel(t, url, "Bearer "+token)
	require.Contains(t, m.Ok("propose", talk("t")), `"EXECUTED"`)
	require.Contains(t, m.Ok("recall", townRequest("t")), "mayor-9 gave")

	session := openModelSession(t, url, "Authorization: Bearer "+token)
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	got, _ := status(t, http.MethodPost, url, ping, session, "Authorization: Bearer "+token)
	require.Equal(t, http.StatusOK, got)
	got, _ = status(t, http.MethodPost, url, ping, session, "Authorization: "+basic("agent", servertest.Password))
	require.Equal(t, http.StatusNotFound, got)
	got, _ = status(t, http.MethodPost, url, ping, session)
	require.Equal(t, http.StatusUnauthorized, got)

	// A user with tokens alone cannot sign in at NATS, with whatever password.
	for _, password := range []string{"", token, hash} {
		_, err := dial(srv.URL(), nats.UserInfo("bot", password))
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}
}

func hashes(list ...string) (secrets []secret.Text) {
	for _, hash := range list {
		secrets = append(secrets, secret.Text(hash))
	}
	return secrets
}

// A reload ends the sessions of users who are gone, or whose tokens are.
func TestMCP_Reload(t *testing.T) {
	t.Parallel()
	first, firstHash := access.NewToken()
	second, secondHash := access.NewToken()
	users := []access.User{servertest.Person(wire.Operator), {Name: "bot", Role: wire.Agent, Tokens: hashes(firstHash)},
		{Name: "cat", Role: wire.Agent, Tokens: hashes(secondHash)}}
	srv := start(t, withHTTP, servertest.WithUsers(users...))
	url := srv.HTTP() + "/mcp"
	gone, stays := mustModel(t, url, "Bearer "+first), mustModel(t, url, "Bearer "+second)
	_, thirdHash := access.NewToken()
	users = slices.Clone(users)
	users[1].Tokens = hashes(thirdHash)
	done, err := srv.ReloadAccess(&access.Config{Users: users})
	require.NoError(t, err)
	require.Equal(t, 1, done.Ended)
	require.Error(t, gone.Ping(t.Context(), nil))
	require.NoError(t, stays.Ping(t.Context(), nil))
	got, _ := status(t, http.MethodPost, url, initialize, "Authorization: Bearer "+first)
	require.Equal(t, http.StatusUnauthorized, got)
	require.Equal(t, []string{"cat"}, srv.Models())
}

// A call in hand of an operator who is removed goes on with no rights.
func TestMCP_ReloadInHand(t *testing.T) {
	t.Parallel()
	keeper := servertest.Person(wire.Operator, called("keeper"))
	leaver := servertest.Person(wire.Operator, called("leaver"))
	srv := start(t, withHTTP, servertest.WithUsers(keeper, leaver), pauseWait(3*time.Second))
	w := connectUser(t, srv.URL(), keeper)
	at := w.putTown("t")
	w.request("control.pause", townRequest("t"))
	m := mustModel(t, srv.HTTP()+"/mcp", basic("leaver", servertest.Password))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = m.CallTool(t.Context(), &sdk.CallToolParams{Name: "propose", Arguments: talk("t")})
	}()
	waits := func() bool { // the proposal waits for the end of the pause
		return call[messages.WorldReport](w, "world.status", members{}).Waiting > 0
	}
	eventually(t, waits)
	_, err := srv.ReloadAccess(&access.Config{Users: []access.User{keeper}})
	require.NoError(t, err)
	eventually(t, func() bool { return !waits() })
	w.request("control.resume", townRequest("t"))
	<-done
	w.executes(w.wall(at)) // nothing came before it
}

// A message that is none is refused with a reason, and begins no session.
func TestMCP_BadMessages(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP)
	url := srv.HTTP() + "/mcp"
	for _, c := range []struct {
		body, header string
		want         int
	}{
		{"", "", 400}, {"{", "", 400}, {"[" + initialize + "]", "", 400}, {`"x"`, "", 400}, {"null", "", 400},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "", 400}, {`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "", 400},
		{strings.Repeat(" ", 70<<10) + initialize, "", 413}, {initialize, "Accept: text/html", 400},
		{initialize, "Content-Type: text/plain", 415}, {initialize, "Mcp-Protocol-Version: 1999-01-01", 400},
		{initialize, "Mcp-Session-Id: unknown", 404}, {`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "", 400},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":7}`, "", 400},
	} {
		got, text := status(t, http.MethodPost, url, c.body, "X: x", c.header)
		require.Equal(t, c.want, got, "%.60q %s: %s", c.body, c.header, text)
	}
	eventually(t, func() bool { return len(srv.Models()) == 0 })
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		got, _ := status(t, method, url, initialize)
		require.Equal(t, http.StatusMethodNotAllowed, got)
	}
	session := openModelSession(t, url)
	got, _ := status(t, http.MethodDelete, url, "", session)
	require.Equal(t, http.StatusNoContent, got)
	got, _ = status(t, http.MethodDelete, url, "", session)
	require.Equal(t, http.StatusNotFound, got)
	require.Empty(t, srv.Models())
}

// Sessions that hosts leave open end the oldest ones, and bound memory and goroutines.
func TestMCP_ManySessions(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP)
	url := srv.HTTP() + "/mcp"
	first := openModelSession(t, url)
	for range 150 {
		openModelSession(t, url)
	}
	require.Len(t, srv.Models(), 100)
	got, _ := status(t, http.MethodPost, url, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, first)
	require.Equal(t, http.StatusNotFound, got)
}

// A server that stops answers the unanswered calls, refuses others, and ends the streams.
func TestMCP_Drain(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP)
	connect(t, srv).putTown("t")
	m := mustModel(t, srv.HTTP()+"/mcp", "")
	require.Contains(t, m.Ok("propose", talk("t")), `"EXECUTED"`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	require.NoError(t, srv.Close(ctx))
	require.Less(t, time.Since(began), 20*time.Second)
	require.Error(t, m.Ping(t.Context(), nil))
	require.Empty(t, srv.Models())
}

// A server that stands by says so, and a host that connects to the other one goes on.
func TestMCP_Standby(t *testing.T) {
	t.Parallel()
	hub := start(t, open)
	join := func(c *server.Config) { c.External.URL = hub.URL() }
	_ = hub
	standby := start(t, withHTTP, join)
	require.False(t, standby.Serving())
	got, text := status(t, http.MethodPost, standby.HTTP()+"/mcp", initialize)
	require.Equal(t, http.StatusServiceUnavailable, got)
	require.Contains(t, text, "another server serves the world")
	require.Contains(t, text, "Nothing was proposed")
	var body struct {
		Error struct{ Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &body))
	require.NotEmpty(t, body.Error.Message)
}

// A result that the host did not get stays open: the same proposal gets it, and is executed once.
func TestMCP_HostGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withHTTP, patient)
	w.putTown("t")
	url := w.Server.HTTP() + "/mcp"
	w.request("control.pause", townRequest("t"))
	m := mustModel(t, url, "")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := m.CallTool(ctx, &sdk.CallToolParams{Name: "propose", Arguments: talk("t")})
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	w.request("control.resume", townRequest("t"))
	before := w.town("t").DecisionEpoch
	other := mustModel(t, url, "") // the host begins another session
	require.Contains(t, other.Ok("propose", talk("t")), `"EXECUTED"`)
	require.LessOrEqual(t, w.town("t").DecisionEpoch, before+1)
	require.Equal(t, int64(16), w.town("t").DecisionEpoch, "once")
}

// Each world of a server has an address, and a user finds the worlds that it may use.
func TestMCP_Worlds(t *testing.T) {
	t.Parallel()
	bounded := servertest.Person(wire.Agent, func(u *access.User) { u.Worlds = []string{"a"} })
	srv := start(t, withHTTP, withWorlds("a", "b"), servertest.WithUsers(servertest.Person(wire.Operator), bounded))
	operator := connectUser(t, srv.URL(), servertest.Person(wire.Operator))
	for _, world := range []string{"a", "b"} {
		serves(t, srv, world)
		operator.world = world
		operator.putTown("t-" + world)
		m := mustModel(t, srv.HTTP()+"/mcp/"+world, basic("operator", servertest.Password))
		require.Contains(t, m.Ok("list_towns", nil), "t-"+world)
		require.Regexp(t, `^{"world":"`+world+`","worlds":\[{"world":"a",.*{"world":"b",.*"total":2}$`, m.Ok("list_worlds", nil))
	}
	alone := mustModel(t, srv.HTTP()+"/mcp/a", basic("agent", servertest.Password))
	own := regexp.MustCompile(`^{"world":"a","worlds":\[{"world":"a","state":"served",[^{}]*}\],"total":1}$`)
	eventually(t, func() bool { // a writer may be too busy to answer the server that lists
		return own.MatchString(alone.Ok("list_worlds", nil))
	})
	agent := "Authorization: " + basic("agent", servertest.Password)
	for path, want := range map[string]string{"/mcp/b": "the worlds are a", "/mcp/unknown": "the worlds are a"} {
		got, text := status(t, http.MethodPost, srv.HTTP()+path, initialize, agent)
		require.Equal(t, http.StatusNotFound, got)
		require.Contains(t, text, want)
	}
	got, text := status(t, http.MethodPost, srv.HTTP()+"/mcp", initialize,
		"Authorization: "+basic("operator", servertest.Password))
	require.Equal(t, http.StatusNotFound, got)
	require.Contains(t, text, "the worlds are a, b")
	session := openModelSession(t, srv.HTTP()+"/mcp", agent)
	got, _ = status(t, http.MethodPost, srv.HTTP()+"/mcp/a", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, agent, session)
	require.Equal(t, http.StatusOK, got)

	operator.world = "a"
	clients := call[struct {
		Clients []struct {
			User, Name  string
			Connections int
		}
	}](operator, "world.clients", members{}).Clients
	names := map[string]int{}
	for _, c := range clients {
		names[c.User+" "+c.Name] = c.Connections
	}
	require.Equal(t, 1, names["agent mcp t"], names)
	require.Equal(t, 1, names["operator mcp test"], names)
}

// A further world takes nothing from the hosts of the world main, whose address names no world.
func TestMCP_FurtherWorld(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP, allWorlds, withWorlds("main"))
	w := connect(t, srv)
	w.putTown("t")
	before := mustModel(t, srv.HTTP()+"/mcp", "")
	call[messages.WorldCreated](w, "worlds.create", members{"world": "further"})
	after := mustModel(t, srv.HTTP()+"/mcp", "")
	for _, m := range []*mcptest.Model{before, after} {
		require.Contains(t, m.Ok("propose", talk("t")), `"EXECUTED"`)
		require.Contains(t, m.Ok("list_worlds", nil), `{"world":"main","worlds":[{"world":"further",`)
	}
}

// The sessions of a world that is removed end: a new world of its name is another one.
func TestMCP_RemovedWorld(t *testing.T) {
	t.Parallel()
	srv := start(t, withHTTP, allWorlds, withWorlds("main"))
	w := connect(t, srv)
	w.makeWorld("short")
	session := openModelSession(t, srv.HTTP()+"/mcp/short")
	ping := func() int {
		got, _ := status(t, http.MethodPost, srv.HTTP()+"/mcp/short", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, session)
		return got
	}
	require.Equal(t, http.StatusOK, ping())
	w.removeWorld("short")
	w.makeWorld("short")
	require.Equal(t, http.StatusNotFound, ping())
}

// Wrong passwords and tokens are limited as over NATS; a right token is never refused.
func TestMCP_WrongPasswords(t *testing.T) {
	t.Parallel()
	token, hash := access.NewToken()
	log := &natstest.Buffer{}
	srv := start(t, withHTTP, logged(log), servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Agent), access.User{Name: "bot", Role: wire.Agent, Tokens: hashes(hash)}))
	try := func(authorization string) int {
		got, _ := status(t, http.MethodPost, srv.HTTP()+"/mcp", initialize, "Authorization: "+authorization)
		return got
	}
	require.NotContains(t, log.String(), "could not sign in")
	for range 30 {
		wrong, _ := access.NewToken()
		require.Equal(t, http.StatusUnauthorized, try("Bearer "+wrong))
		require.NotContains(t, log.String(), wrong)
	}
	require.Regexp(t, `level=WARN msg="a request over HTTP could not sign in.* address=127.0.0.1 user="" path=/mcp`, log)
	require.Equal(t, http.StatusUnauthorized, try(basic("agent", servertest.Password)), "the address has to wait")
	_, err := dial(srv.URL(), nats.UserInfo("agent", servertest.Password))
	require.ErrorIs(t, err, nats.ErrAuthorization, "so it has at NATS")
	require.Equal(t, http.StatusOK, try("Bearer "+token))
}

// The path has the TLS of the console, and requires its client certificates.
func TestMCP_TLS(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t)
	srv := start(t, withHTTP, withTLS(cert, key, cert))
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	for _, certified := range []bool{false, true} {
		trust := &tls.Config{InsecureSkipVerify: true}
		if certified {
			trust.Certificates = []tls.Certificate{pair}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.HTTP()+"/mcp", strings.NewReader(initialize))
		require.NoError(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}}
		r.SetBasicAuth("agent", servertest.Password)
		transport := &http.Transport{TLSClientConfig: trust}
		t.Cleanup(transport.CloseIdleConnections)
		answer, err := transport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, map[bool]int{false: http.StatusForbidden, true: http.StatusOK}[certified], answer.StatusCode)
	}
}
