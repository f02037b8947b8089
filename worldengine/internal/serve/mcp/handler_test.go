package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/testkit/natstest"
)

// site is a handler on HTTP, whose requests are of the user in their header User.
type site struct {
	*mcp.Handler
	t   *testing.T
	url string
}

func startSite(t *testing.T, config mcp.HandlerConfig) *site {
	t.Helper()
	m := session(t, start(t))
	config.Open = func(*http.Request, mcp.Caller) (mcp.Config, error) {
		return mcp.Config{Client: m.Client, Towns: m.Towns}, nil
	}
	s := &site{Handler: mcp.NewHandler(config), t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		s.Serve(w, r, mcp.Caller{User: r.Header.Get("User"), World: "main"})
	}))
	s.url = server.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Close(ctx))
		server.Close()
	})
	return s
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
)

// ask sends a request of a user in a session, "" for none.
func (s *site) ask(method, user, session, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header = http.Header{"User": {user}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// post posts a message, and returns the status and the body of the answer.
func (s *site) post(user, session, body string) (int, string) {
	s.t.Helper()
	answer := s.ask(http.MethodPost, user, session, body)
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer.StatusCode, string(text)
}

// openSession begins a session of a user, and returns its id.
func (s *site) openSession(user string) string {
	s.t.Helper()
	answer := s.ask(http.MethodPost, user, "", initialize)
	require.Equal(s.t, http.StatusOK, answer.StatusCode)
	return answer.Header.Get("Mcp-Session-Id")
}

// alive reports whether a user has a session.
func (s *site) alive(user, session string) bool {
	status, _ := s.post(user, session, ping)
	return status == http.StatusOK
}

// A session ends when it was idle, and one with an open stream is not.
func TestHandler_Idle(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, 300*time.Millisecond, func(idleTime time.Duration) string {
		s := startSite(t, mcp.HandlerConfig{Idle: idleTime})
		idle, streams := s.openSession("a"), s.openSession("a")
		if got := s.ask(http.MethodGet, "a", streams, "").StatusCode; got != http.StatusOK {
			return fmt.Sprintf("a session has no stream: %d", got)
		}
		require.Equal(t, http.StatusConflict, s.ask(http.MethodGet, "a", streams, "").StatusCode, "one stream a session")
		left := func() bool { return len(s.Sessions()) == 1 }
		require.Eventually(t, left, time.Minute, 10*time.Millisecond)
		require.False(t, s.alive("a", idle))
		s.openSession("a")
		require.Eventually(t, left, time.Minute, 10*time.Millisecond, "after Idle")
		require.True(t, s.alive("a", streams))
		return ""
	})
}

// A user with many sessions loses the idlest; others lose none before all have as many as may be.
func TestHandler_Bounds(t *testing.T) {
	t.Parallel()
	s := startSite(t, mcp.HandlerConfig{MaxSessions: 5, MaxOfUser: 3})
	other := s.openSession("b")
	var own []string
	for range 5 {
		own = append(own, s.openSession("a"))
	}
	require.True(t, s.alive("b", other))
	require.Len(t, s.Sessions(), 4)
	for i, id := range own {
		require.Equal(t, i >= 2, s.alive("a", id), i)
	}
	require.False(t, s.alive("b", own[4]), "another user's")

	for _, id := range own[2:] { // all have an unanswered request
		require.Equal(t, http.StatusOK, s.ask(http.MethodGet, "a", id, "").StatusCode)
	}
	status, text := s.post("a", "", initialize)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, text, "end one with DELETE")
	for range 3 {
		s.openSession("c")
	}
	require.Len(t, s.Sessions(), 5)
	require.False(t, s.alive("b", other), "the idlest of all")
}

// The end of a session ends its stream, as the end of the handler does.
func TestHandler_StreamsEnd(t *testing.T) {
	t.Parallel()
	s := startSite(t, mcp.HandlerConfig{})
	removed, left := s.openSession("a"), s.openSession("b")
	first, second := s.ask(http.MethodGet, "a", removed, ""), s.ask(http.MethodGet, "b", left, "")
	ended := func(answer *http.Response) {
		_, err := io.Copy(io.Discard, bufio.NewReader(answer.Body))
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.EndSessions(func(c mcp.Caller) bool { return c.User == "a" }))
	ended(first)
	require.True(t, s.alive("b", left))
	s.Drain()
	ended(second)
	status, _ := s.post("b", left, ping)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

// A session answers calls that come at once, and those beyond its bounds say that nothing was proposed.
func TestHandler_CallsAtOnce(t *testing.T) {
	t.Parallel()
	s := startSite(t, mcp.HandlerConfig{})
	id := s.openSession("a")
	var calls sync.WaitGroup
	var answered, busy atomic.Int64
	for i := range 200 {
		calls.Go(func() {
			status, text := s.post("a", id, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_towns","arguments":{}}}`, i))
			switch {
			case status == http.StatusOK && strings.Contains(text, "town-threatened"):
				answered.Add(1)
			case strings.Contains(text, "as many calls in hand") && strings.Contains(text, "nothing was proposed"):
				busy.Add(1)
			}
		})
	}
	calls.Wait()
	require.EqualValues(t, 200, answered.Load()+busy.Load())
	require.GreaterOrEqual(t, answered.Load(), int64(16))
}

// What would never end, and ids that the library would change, are refused.
func TestHandler_Refuses(t *testing.T) {
	t.Parallel()
	s := startSite(t, mcp.HandlerConfig{})
	id := s.openSession("a")
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["` +
			threatenedURI + `"]}}}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":[],"method":"ping"}`,
		`{"jsonrpc":"2.0","id":4,"method":"ping","method":"tools/list"}`,
	} {
		status, text := s.post("a", id, body)
		require.Equal(t, http.StatusBadRequest, status, text)
	}
	require.True(t, s.alive("a", id))
}
