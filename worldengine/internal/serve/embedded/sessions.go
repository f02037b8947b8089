package embedded

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/internal/serve/httpd"
)

// Bounds of sessions.
const (
	sessionTTL = 24 * time.Hour
	// sessionsOfUser is how many sessions a user may have; a further one ends the oldest.
	sessionsOfUser = 20
)

// sessionPrefix is the prefix of every session's token. A password that begins with it and has the length of a
// token is no password.
const sessionPrefix = "console-session-"

// session is a user's right to sign in at the console without the password.
type session struct {
	token [sha256.Size]byte // its hash: the token itself is kept nowhere
	user  *natsserver.User  // as it was when the session began
	until time.Time
}

// sessions are the sessions of the console. They are kept in memory alone, so that they end with the
// server. It is safe for concurrent use.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open []session // the oldest first
}

func newSessions() *sessions { return &sessions{now: time.Now} }

// create makes a session of a user, and returns its token.
func (s *sessions) create(user *natsserver.User) (token string) {
	token = sessionPrefix + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, first, ofUser := s.now(), 0, 0
	s.open = slices.DeleteFunc(s.open, func(open session) bool { return !now.Before(open.until) })
	for i := range s.open {
		if s.open[i].user.Username != user.Username {
			continue
		}
		if ofUser++; ofUser == 1 {
			first = i
		}
	}
	if ofUser == sessionsOfUser {
		s.open = slices.Delete(s.open, first, first+1)
	}
	s.open = append(s.open, session{sha256.Sum256([]byte(token)), user, now.Add(sessionTTL)})
	return token
}

// has reports whether a token is of a session of a user. If the user has changed since it began, the
// session has ended.
func (s *sessions) has(user *natsserver.User, token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, now := sha256.Sum256([]byte(token)), s.now()
	return slices.ContainsFunc(s.open, func(open session) bool {
		return open.token == hash && now.Before(open.until) && reflect.DeepEqual(open.user, user)
	})
}

// renew keeps the sessions of a user whose permissions alone have changed.
func (s *sessions) renew(before, after *natsserver.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.open {
		if reflect.DeepEqual(s.open[i].user, before) {
			s.open[i].user = after
		}
	}
}

// end ends the session of a token.
func (s *sessions) end(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := sha256.Sum256([]byte(token))
	s.open = slices.DeleteFunc(s.open, func(open session) bool { return open.token == hash })
}

// isSessionToken reports whether a password has the form of a session's token.
func isSessionToken(password string) bool {
	return strings.HasPrefix(password, sessionPrefix) &&
		len(password) == len(sessionPrefix)+len(rand.Text())
}

// CreateSession answers the user and the password of a user with the token of a session. Wrong ones
// count as wrong sign-ins do.
func (e *NATS) CreateSession(w http.ResponseWriter, r *http.Request) {
	accounts := e.accounts
	var login struct{ User, Password string }
	if !httpd.SameOrigin(r) {
		http.Error(w, "A page of another origin may not sign in here.", http.StatusForbidden)
		return
	}
	if json.NewDecoder(r.Body).Decode(&login) != nil {
		http.Error(w, "It must be {user, password}.", http.StatusBadRequest)
		return
	}
	user := accounts.logins.Load().byName[login.User]
	if user == nil || !accounts.passwords.Right(httpd.ClientAddress(r), storedOf(user), login.Password) {
		httpd.LogRefused(accounts.config.Logger, r, login.User)
		http.Error(w, "The user or the password is not right, or there were too many tries.",
			http.StatusForbidden)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"token": accounts.sessions.create(user)})
}

// EndSession ends the session whose token a request has.
func (e *NATS) EndSession(w http.ResponseWriter, r *http.Request) {
	var of struct{ Token string }
	if !httpd.SameOrigin(r) || json.NewDecoder(r.Body).Decode(&of) != nil {
		http.Error(w, "It must be {token}, of a page of this server.", http.StatusBadRequest)
		return
	}
	e.accounts.sessions.end(of.Token)
	w.WriteHeader(http.StatusNoContent)
}
