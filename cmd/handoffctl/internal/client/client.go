// Package client asks a world engine over NATS: one request, one reply, and errors that say whether
// the server refused (ReplyError) or could not be reached (UnavailableError).
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/worldengine"
)

// The verbs of the service.
const (
	Handoff       = "handoff"
	TownGet       = "town.get"
	TownList      = "town.list"
	TownPut       = "town.put"
	TownPatch     = "town.patch"
	ResultGet     = "result.get"
	RunGet        = "run.get"
	RunList       = "run.list"
	RunEvents     = "run.events"
	RunCancel     = "run.cancel"
	ControlPause  = "control.pause"
	ControlResume = "control.resume"
	ControlGet    = "control.get"
)

// Client asks one world over one connection. It is safe for concurrent use.
type Client struct {
	// Conn is the connection; the client does not close it.
	Conn *nats.Conn
	// World is the world's name.
	World string
	// Timeout bounds one request, all its repetitions included.
	Timeout time.Duration
}

// Request sends body to a verb and returns the reply. A reply of 429 or 503 is asked again after
// the pause that it asks for, as long as Timeout has room for it; what changes a town or gives a signal
// is repeated after a 429 only, since a 503 may have stored it. The error is a *ReplyError or an *UnavailableError.
func (c *Client) Request(ctx context.Context, verb string, body []byte) (*nats.Msg, error) {
	deadline := time.Now().Add(c.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		msg, err := c.ask(ctx, verb, body)
		var refused *ReplyError
		if !errors.As(err, &refused) || !repeatable(verb, refused) {
			return msg, err
		}
		if time.Until(deadline) <= refused.RetryAfter {
			return nil, err
		}
		select {
		case <-time.After(refused.RetryAfter):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func repeatable(verb string, refused *ReplyError) bool {
	switch refused.Status {
	case http.StatusTooManyRequests:
		return refused.RetryAfter > 0
	case http.StatusServiceUnavailable:
		return refused.RetryAfter > 0 && !changes(verb)
	}
	return false
}

// changes says whether a verb, asked again, may refuse what it did the first time.
func changes(verb string) bool {
	switch verb {
	case TownPut, TownPatch, RunCancel, ControlPause, ControlResume:
		return true
	}
	return false
}

// ask sends one request once.
func (c *Client) ask(ctx context.Context, verb string, body []byte) (*nats.Msg, error) {
	msg, err := c.Conn.RequestWithContext(ctx, worldengine.Subject(c.World, verb), body)
	if err != nil {
		return nil, c.unanswered(err, verb, len(body))
	}
	if refused := ReplyErrorOf(msg); refused != nil {
		return nil, refused
	}
	return msg, nil
}

// unanswered says why a request got no reply.
func (c *Client) unanswered(err error, verb string, size int) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return tooLarge(size, c.Conn.MaxPayload())
	case errors.Is(err, nats.ErrNoResponders):
		return &UnavailableError{Code: "NO_RESPONDERS", Message: fmt.Sprintf(
			"nobody serves %s of the world %q there: is handoffd running, with this world?",
			verb, c.World), Cause: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		if denied := c.Conn.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
			return &UnavailableError{Code: "PERMISSION_DENIED", Message: fmt.Sprintf(
				"this user may not ask for %s, or not read the answer in its inbox (--inbox-prefix): %s",
				verb, denied), Cause: err}
		}
		return &UnavailableError{Code: "TIMEOUT", Message: fmt.Sprintf(
			"no answer to %s within %s", verb, c.Timeout), Cause: err}
	case errors.Is(err, context.Canceled):
		return &UnavailableError{Code: "INTERRUPTED", Message: "interrupted before an answer came", Cause: err}
	}
	return &UnavailableError{Code: "CONNECTION", Message: "the connection failed: " + err.Error(), Cause: err}
}

// ReplyErrorOf returns what an error reply says, or nil for any other reply.
func ReplyErrorOf(msg *nats.Msg) *ReplyError {
	code := msg.Header.Get(micro.ErrorCodeHeader)
	if code == "" {
		return nil
	}
	status, err := strconv.Atoi(code)
	if err != nil {
		status = http.StatusInternalServerError
	}
	refused := &ReplyError{Status: status}
	refused.read(msg.Data)
	if refused.Message == "" {
		refused.Message = msg.Header.Get(micro.ErrorHeader)
	}
	if ms, err := strconv.Atoi(msg.Header.Get(worldengine.RetryAfterHeader)); err == nil && ms > 0 {
		refused.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	return refused
}
