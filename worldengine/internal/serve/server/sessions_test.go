package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// session asks for a session with a method and a body, and returns the answer.
func session(t *testing.T, srv *server.Server, method, body string, origin ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.HTTP()+"/session", strings.NewReader(body))
	require.NoError(t, err)
	for _, o := range origin {
		r.Header.Set("Origin", o)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// signIn begins a session of a user, and returns its token.
func signIn(t *testing.T, srv *server.Server, user string) string {
	t.Helper()
	status, body := session(t, srv, http.MethodPost,
		`{"user":"`+user+`","password":"`+servertest.Password+`"}`, srv.HTTP())
	require.Equal(t, http.StatusOK, status, body)
	var got struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.NotEmpty(t, got.Token)
	return got.Token
}

// A session signs its user in at the console, and nobody else, nor elsewhere. It ends when the page ends
// it, when the user changes in the access file, and with the server; nothing logs it.
func TestSessions(t *testing.T) {
	t.Parallel()
	log := &natstest.Buffer{}
	operator, observer := servertest.Person(wire.Operator), servertest.Person(wire.Observer)
	both := servertest.WithUsers(operator, observer)
	srv := start(t, withHTTP, both, logged(log))
	allows := func(srv *server.Server, user, token string) bool {
		t.Helper()
		nc, err := browse(srv, nats.UserInfo(user, token))
		if err != nil {
			require.ErrorIs(t, err, nats.ErrAuthorization)
			return false
		}
		nc.Close()
		return true
	}
	token := signIn(t, srv, "operator")
	require.True(t, allows(srv, "operator", token))
	require.True(t, allows(srv, "operator", token), "as often as the page is loaded")
	require.False(t, allows(srv, "observer", token))
	require.False(t, allows(srv, "operator", token[:len(token)-1]+"?"))
	_, err := dial(srv.URL(), nats.UserInfo("operator", token))
	require.ErrorIs(t, err, nats.ErrAuthorization, "it is no browser's")

	for body, origin := range map[string]string{
		`{"user":"operator","password":"wrong"}`:                             srv.HTTP(),
		`{"user":"nobody","password":"` + servertest.Password + `"}`:         srv.HTTP(),
		`{"user":"operator","password":"` + token + `"}`:                     srv.HTTP(),
		`{"user":"operator","password":"` + servertest.Password + `"}`:       "http://example.com",
		`{"user":"operator", "password":"` + servertest.Password + `",    }`: srv.HTTP(),
	} {
		status, text := session(t, srv, http.MethodPost, body, origin)
		require.Contains(t, []int{http.StatusForbidden, http.StatusBadRequest}, status, body)
		require.NotContains(t, text, "token\"")
	}
	require.Regexp(t, `could not sign in.* address=127.0.0.1 user=operator path=/session`, log)
	other := signIn(t, srv, "operator")
	status, _ := session(t, srv, http.MethodDelete, `{"token":"`+other+`"}`)
	require.Equal(t, http.StatusNoContent, status)
	require.False(t, allows(srv, "operator", other))
	require.True(t, allows(srv, "operator", token))

	kept := signIn(t, srv, "observer")
	operator.Role = wire.Approver
	_, err = srv.ReloadAccess(&access.Config{Users: []access.User{operator, observer}})
	require.NoError(t, err)
	require.False(t, allows(srv, "operator", token))
	require.True(t, allows(srv, "observer", kept), "it has not changed")
	require.False(t, allows(start(t, withHTTP, both), "observer", kept), "of another server")
	for _, secret := range []string{token, other, kept, servertest.Password} {
		require.NotContains(t, log.String(), secret)
	}

	// Without users there is nothing to sign in to.
	status, _ = session(t, start(t, withHTTP), http.MethodPost, "{}")
	require.Equal(t, http.StatusMethodNotAllowed, status)
}
