package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Headers of the protocol, and one that only transports set: the number of a request.
const (
	sessionHeader = "Mcp-Session-Id"
	callHeader    = "Worldengine-Call"
)

// Caller is the user of a request, and the world that its path names.
type Caller struct {
	User  string // "" without access control
	World string
}

// HandlerConfig configures a Handler.
type HandlerConfig struct {
	// Open returns the configuration of a new session of a caller; required.
	Open func(r *http.Request, caller Caller) (Config, error)
	// MaxSessions and MaxOfUser bound the sessions, in all and of one user; 1,000 and 100. A further
	// session ends the one that has gone longest without a request.
	MaxSessions, MaxOfUser int
	// Idle is how long a session lasts without a request; 30 minutes. An open stream is a request.
	Idle time.Duration
}

func (c HandlerConfig) withDefaults() HandlerConfig {
	c.MaxSessions, c.MaxOfUser = cmp.Or(c.MaxSessions, 1000), cmp.Or(c.MaxOfUser, 100)
	c.Idle = cmp.Or(c.Idle, 30*time.Minute)
	return c
}

// Handler serves sessions over Streamable HTTP. Its caller has admitted a request and bounded its body.
// It is safe for concurrent use.
type Handler struct {
	config HandlerConfig
	sdk    *sdk.StreamableHTTPHandler
	calls  atomic.Int64 // the number of the last request
	end    chan struct{}

	mu       sync.Mutex
	ended    bool
	sessions map[string]*session       // by their ids
	expected map[int64]AnswerCallbacks // by the numbers of the unanswered requests
	requests sync.WaitGroup            // in hand
	closing  sync.WaitGroup            // of sessions
}

// NewHandler returns a handler without sessions.
func NewHandler(config HandlerConfig) *Handler {
	h := &Handler{config: config.withDefaults(), end: make(chan struct{}), sessions: map[string]*session{},
		expected: map[int64]AnswerCallbacks{}}
	h.sdk = sdk.NewStreamableHTTPHandler(serverOf, &sdk.StreamableHTTPOptions{
		JSONResponse: true, DisableLocalhostProtection: true, // the caller has looked at the host
	})
	return h
}

// toolsKey is the key of a request's session in its context.
type toolsKey struct{}

func serverOf(r *http.Request) *sdk.Server {
	if tools, is := r.Context().Value(toolsKey{}).(*Tools); is {
		return tools.server
	}
	return nil
}

// Serve answers a request of a caller.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller Caller) {
	if !h.startRequest() {
		Refuse(w, http.StatusServiceUnavailable, "the server is stopping: connect again in a moment")
		return
	}
	defer h.requests.Done()
	id := r.Header.Get(sessionHeader)
	switch {
	case id != "":
		h.serveSession(w, r, caller, id)
	case r.Method == http.MethodPost:
		h.serveFirst(w, r, caller)
	default:
		Refuse(w, http.StatusBadRequest, "the header Mcp-Session-Id is missing: a session begins with the POST "+
			"of an initialize request, whose answer has the header")
	}
}

// startRequest counts an unanswered request, unless the handler has ended.
func (h *Handler) startRequest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.requests.Add(1)
	return true
}

// serveSession answers a request in a session.
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request, caller Caller, id string) {
	s := h.acquire(id, caller)
	if s == nil {
		Refuse(w, http.StatusNotFound, "there is no such session (any more): begin one with an initialize request")
		return
	}
	defer h.release(s)
	switch r.Method {
	case http.MethodDelete:
		h.remove(s)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		h.stream(w, r, s)
	default:
		if m, ok := readMessage(w, r); ok {
			if m.Method == "notifications/cancelled" {
				s.answered.cancelled(m.Params.RequestID)
			}
			h.answer(w, r, s, m)
		}
	}
}

// serveFirst answers a request without a session. Only initialize begins one. Discovery gets an answer,
// from which hosts of a later version of the protocol learn the versions of this server.
func (h *Handler) serveFirst(w http.ResponseWriter, r *http.Request, caller Caller) {
	m, ok := readMessage(w, r)
	if !ok {
		return
	}
	if m.Method != "initialize" && m.Method != "server/discover" {
		Refuse(w, http.StatusBadRequest, "the header Mcp-Session-Id is missing: only initialize begins a session")
		return
	}
	s, err := h.open(r, caller)
	if err != nil {
		Refuse(w, http.StatusServiceUnavailable, modelError(err).Error())
		return
	}
	if s == nil {
		Refuse(w, http.StatusTooManyRequests, "there are as many sessions as may be, and all have requests in "+
			"hand: end one with DELETE")
		return
	}
	defer h.release(s)
	h.answer(w, r, s, m)
	if !s.initialized() {
		h.remove(s)
	}
}

// message is a JSON-RPC message: the members that the handler looks at, and its bytes.
type message struct {
	ID     jsontext.Value `json:"id"`
	Method string         `json:"method"`
	Params struct {
		RequestID jsontext.Value `json:"requestId"`
	} `json:"params"`

	data []byte
}

// readMessage reads the message of a POST. It answers the request if there is none.
func readMessage(w http.ResponseWriter, r *http.Request) (*message, bool) {
	data, err := io.ReadAll(r.Body)
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		Refuse(w, http.StatusRequestEntityTooLarge, "a message has at most "+strconv.FormatInt(large.Limit, 10)+" bytes")
		return nil, false
	}
	if err != nil {
		Refuse(w, http.StatusRequestTimeout, "the message did not arrive in time")
		return nil, false
	}
	m := &message{data: data}
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '[' {
		Refuse(w, http.StatusBadRequest, "a message is one JSON-RPC object: batches are not read")
		return nil, false
	}
	if err := json.Unmarshal(data, m); err != nil {
		refuse(w, http.StatusBadRequest, jsonrpc.CodeParseError, "the body is no JSON-RPC message: "+err.Error())
		return nil, false
	}
	if wrong := m.invalidReason(); wrong != "" {
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, wrong)
		return nil, false
	}
	return m, true
}

// invalidReason says why the handler does not pass a message to the library; "" if it does.
func (m *message) invalidReason() string {
	switch kind := m.ID.Kind(); {
	case m.Method == "subscriptions/listen": // it would never end, also if the host is gone
		return "subscriptions/listen is of a later version of the protocol: ask resources/subscribe"
	case m.ID == nil || kind == '"':
		return ""
	case kind != '0':
		return "an id is a text or a number"
	}
	if number, err := strconv.ParseInt(string(m.ID), 10, 64); err != nil || number != int64(float64(number)) {
		return "a number is an id only if it is an integer below 2^53: the library would answer another id"
	}
	return ""
}

// answer has the library answer a message, and reports to the tools whether the host got the answer.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, s *session, m *message) {
	number := h.calls.Add(1)
	h.mu.Lock()
	h.expected[number] = AnswerCallbacks{}
	h.mu.Unlock()
	out := newPatientWriter(w)
	r = r.WithContext(context.WithValue(r.Context(), toolsKey{}, s.tools))
	r.Header = r.Header.Clone()
	r.Header.Set(callHeader, strconv.FormatInt(number, 10))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(m.data)), int64(len(m.data))
	h.sdk.ServeHTTP(out, r)
	h.mu.Lock()
	callbacks := h.expected[number]
	delete(h.expected, number)
	h.mu.Unlock()
	if callbacks.Done == nil || out.failed() || r.Context().Err() != nil {
		return // a proposal stays open
	}
	callbacks.Done()
	s.answered.Add(string(m.ID), callbacks)
}

// Expect implements Answers.
func (h *Handler) Expect(call *sdk.CallToolRequest, d AnswerCallbacks) {
	number := callNumber(call)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, unanswered := h.expected[number]; unanswered {
		h.expected[number] = d
	}
}

// callNumber returns the number that a transport gave to the request of a call; 0 for none.
func callNumber(call *sdk.CallToolRequest) int64 {
	if call.Extra == nil {
		return 0
	}
	number, _ := strconv.ParseInt(call.Extra.Header.Get(callHeader), 10, 64)
	return number
}

// Refuse answers a request with an error that a host can show.
func Refuse(w http.ResponseWriter, status int, text string) { refuse(w, status, -32000, text) }

func refuse(w http.ResponseWriter, status int, code int64, text string) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil,
		"error": map[string]any{"code": code, "message": text}}, json.Deterministic(true))
	if err != nil {
		body = []byte(text)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
