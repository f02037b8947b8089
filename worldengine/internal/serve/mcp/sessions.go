package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/internal/kit/recent"
)

// session is a session over HTTP. Handler.mu guards the members without a comment.
type session struct {
	id      string // constant, as caller, tools and since
	caller  Caller
	tools   *Tools
	created time.Time

	unanswered int // requests
	used       time.Time
	expiry     *time.Timer
	gone       bool

	answered answeredCalls
}

// answeredCalls are the last calls of a session whose answers the host got, by their ids. If the host cancels one, it
// ignores the answer, which it got at the same moment.
type answeredCalls struct {
	*recent.Map[string, AnswerCallbacks]
}

// maxAnswered is how many answered calls a session remembers.
const maxAnswered = 64

func newAnsweredCalls() answeredCalls {
	return answeredCalls{recent.NewMap[string, AnswerCallbacks](maxAnswered)}
}

// cancelled notes that the host gives up a call.
func (a answeredCalls) cancelled(id jsontext.Value) {
	if callbacks, _ := a.Get(string(id)); callbacks.Lost != nil {
		callbacks.Lost()
	}
}

// initialized reports whether the host has initialized the session.
func (s *session) initialized() bool {
	for at := range s.tools.server.Sessions() {
		return at.InitializeParams() != nil
	}
	return false
}

// open makes a session with one unanswered request; nil if there is no room for it.
func (h *Handler) open(r *http.Request, caller Caller) (*session, error) {
	config, err := h.config.Open(r, caller)
	if err != nil {
		return nil, err
	}
	config.Answers = h
	s := &session{id: rand.Text(), caller: caller, unanswered: 1, created: time.Now(), used: time.Now(),
		answered: newAnsweredCalls()}
	config.sessionID = s.id
	s.tools = New(config)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || !h.makeRoom(caller.User) {
		return nil, nil
	}
	h.sessions[s.id] = s
	s.expiry = time.AfterFunc(h.config.Idle, func() { h.expire(s) })
	return s, nil
}

// makeRoom ends the idlest session of a user, or of all, if there are as many as may be. It returns
// false if all have unanswered requests. h.mu is locked.
func (h *Handler) makeRoom(user string) bool {
	sameUser := func(s *session) bool { return s.caller.User == user }
	anybody := func(*session) bool { return true }
	for _, bound := range []struct {
		counts func(*session) bool
		limit  int
	}{{sameUser, h.config.MaxOfUser}, {anybody, h.config.MaxSessions}} {
		if idlest, open := h.count(bound.counts); open >= bound.limit {
			if idlest == nil {
				return false
			}
			h.drop(idlest)
		}
	}
	return true
}

// count returns how many sessions there are of some, and the one without an unanswered request that has gone
// longest without one; nil for none. h.mu is locked.
func (h *Handler) count(of func(*session) bool) (idlest *session, open int) {
	for _, s := range h.sessions {
		if !of(s) {
			continue
		}
		open++
		if s.unanswered == 0 && (idlest == nil || s.used.Before(idlest.used)) {
			idlest = s
		}
	}
	return idlest, open
}

// acquire returns a session, which does not expire until release; nil if the caller has no such session.
func (h *Handler) acquire(id string, caller Caller) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[id]
	if s == nil || s.caller != caller {
		return nil
	}
	s.unanswered++
	s.expiry.Stop()
	return s
}

// release ends a request that acquired a session.
func (h *Handler) release(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.unanswered--
	s.used = time.Now()
	if s.unanswered == 0 && !s.gone {
		s.expiry.Reset(h.config.Idle)
	}
}

// expire ends a session that was idle.
func (h *Handler) expire(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.unanswered == 0 && time.Since(s.used) >= h.config.Idle {
		h.drop(s)
	}
}

func (h *Handler) remove(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(s)
}

// drop ends a session. h.mu is locked.
func (h *Handler) drop(s *session) {
	if s.gone {
		return
	}
	s.gone = true
	s.expiry.Stop()
	delete(h.sessions, s.id)
	h.closing.Go(func() {
		s.tools.Close()
		for at := range s.tools.server.Sessions() {
			_ = at.Close() // waits for its calls
		}
	})
}

// EndSessions ends the sessions of callers, such as users who may no longer sign in.
func (h *Handler) EndSessions(gone func(Caller) bool) (ended int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if gone(s.caller) {
			h.drop(s)
			ended++
		}
	}
	return ended
}

// SessionInfo is a session for those who operate the server.
type SessionInfo struct {
	Caller
	// Host is the name of the host's program; "" before it has said it.
	Host        string
	Since, Used time.Time
}

// Sessions returns the sessions, in no order.
func (h *Handler) Sessions() (sessions []SessionInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		session := SessionInfo{Caller: s.caller, Since: s.created, Used: s.used}
		for at := range s.tools.server.Sessions() {
			if said := at.InitializeParams(); said != nil && said.ClientInfo != nil {
				session.Host = said.ClientInfo.Name
			}
		}
		sessions = append(sessions, session)
	}
	return sessions
}

// Drain refuses requests from now on, and ends the open streams. Unanswered calls go on.
func (h *Handler) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.ended = true
		close(h.end)
	}
}

// Close drains, waits for the unanswered calls until ctx ends, and ends all sessions.
func (h *Handler) Close(ctx context.Context) error {
	h.Drain()
	err := await(ctx, &h.requests)
	h.EndSessions(func(Caller) bool { return true })
	return errors.Join(err, await(ctx, &h.closing))
}

// await waits for a group until ctx ends.
func await(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
