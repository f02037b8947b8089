// Package client asks a world engine over NATS, for agents, tools and tests.
//
//	engine, err := client.Connect("nats://127.0.0.1:4222", client.Options{})
//	town, err := engine.Town(ctx, "town-threatened")
//	h, err := handoff.New(handoff.Proposal{…})
//	outcome, err := engine.Send(ctx, h)
//
// Every call ends within its context and Client.Timeout. Until then it asks again if that can help:
// after 429 and 503 as the server says, and with the same bytes if no answer came. A request that
// could be refused because the first one was carried out (wire.VerbSpec.Changes) is not repeated.
//
// An error is a *ReplyError (the server answered with an error) or an *UnavailableError (no answer
// came, or an invalid one); Commits, Events and Changes have a *LossError besides, and go
// on behind it. docs/contracts.md has the verbs and the codes of errors.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/wire"
)

// DefaultTimeout bounds a call unless Client.Timeout says otherwise.
const DefaultTimeout = 30 * time.Second

// Client asks one world over one connection. It is safe for concurrent use; its fields are set
// before its first use.
type Client struct {
	// Conn is the connection.
	Conn *nats.Conn
	// World is the world's name.
	World string
	// Timeout bounds one request, all its repetitions included; DefaultTimeout.
	Timeout time.Duration
	// Revision is the revision of the results that Send and Result ask for.
	Revision handoff.Revision
	// OnPaused, if not nil, is called when a handoff of Send is found to wait for the end of a
	// pause, or for a game that is away, by the goroutine that called Send and before Send returns.
	// The code of why is TOWN_PAUSED, WORLD_PAUSED or PLUGIN_ABSENT.
	OnPaused func(townID string, why *UnavailableError)
	// ApprovalWait is how long Send waits for a person's decision about a handoff that takes one,
	// and sends the same bytes again; 0 returns the result APPROVAL_REQUIRED at once. OnApproval, if
	// not nil, is called with that result each time Send goes on waiting, about once a minute.
	ApprovalWait time.Duration
	OnApproval   func(*Outcome)
	// Trace, if not nil, returns the W3C trace context of a handoff that is sent with ctx, the zero
	// one for none. The plugin that applies the command, and the events of the run, get it.
	Trace func(ctx context.Context) trace.Context

	served atomic.Bool // whether a server has answered on this connection
}

// Options say how to connect. The zero value connects without credentials to the world main.
type Options struct {
	// Connection has the credentials, as the NATS command line has them. Its inbox prefix is
	// _INBOX_<user> if it names a user with a password, and no other prefix.
	Connection natsconn.Options
	// World is the world's name; wire.DefaultWorld.
	World string
	// Name names the connection for operators; "worldengine client".
	Name string
	// NATS are further options of the connection; they win.
	NATS []nats.Option
}

// Connect connects to the servers of urls (comma-separated; "" is this machine's), and reconnects
// until the client is closed or the server refuses it. The first connection must succeed. The error
// is an *UnavailableError with the code CONNECTION, or another one if Options.World is no name of a
// world.
func Connect(urls string, o Options) (*Client, error) {
	if o.World != "" {
		if err := wire.ValidateWorld(o.World); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	urls = cmp.Or(urls, nats.DefaultURL)
	nc, err := o.Connection.WithUserInbox(urls).Connect(urls, cmp.Or(o.Name, "worldengine client"),
		append([]nats.Option{nats.MaxReconnects(-1)}, o.NATS...)...)
	if err != nil {
		return nil, unavailable(codeConnection, err, "%s", err)
	}
	return New(nc, o.World), nil
}

// New returns a client of a world ("" is wire.DefaultWorld) over a connection of its caller.
func New(nc *nats.Conn, world string) *Client {
	return &Client{Conn: nc, World: cmp.Or(world, wire.DefaultWorld)}
}

// Close closes the connection. Calls that are under way end with an error.
func (c *Client) Close() { c.Conn.Close() }

// IsCode reports whether err is an error of this package with a code, such as wire.CodeUnknownTown.
func IsCode(err error, code wire.Code) bool {
	var refused *ReplyError
	if errors.As(err, &refused) {
		return refused.Code == string(code)
	}
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.Code == string(code)
}

// bounded returns ctx with the client's timeout, which is its deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(undated{ctx}, cmp.Or(c.Timeout, DefaultTimeout))
}

// undated is a context without its deadline, which ends all the same. WithTimeout leaves the end to
// a parent whose deadline comes first by the clock: if that was set forward, the parent's timer may
// run much longer than the timeout.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, is bool) { return time.Time{}, false }

// ReplyError is an error reply: the server was reached and refused (Status 4xx; the request has to
// change, or for 409 and 429 the moment), or was in trouble itself (5xx).
type ReplyError struct {
	// Status is the Nats-Service-Error-Code.
	Status int
	// Code is the machine code, "UNKNOWN" if the reply had none.
	Code string
	// Message is the sentence for people, Details the places in the request.
	Message string
	Details []schemas.Violation
	// RetryAfter is the pause that the server asks for, 0 if asking again makes no sense.
	RetryAfter time.Duration
	// RunID is the run that the reply names, such as the run of a handoff that is being applied; ""
	// if it names none.
	RunID string
	// Body is the reply's body as it came, or one of the same shape if it was not JSON.
	Body []byte
}

// Error gives the machine code and the sentence; the details are left to the caller.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message)
}

// Refused reports whether the request has to change; otherwise the server is in trouble.
func (e *ReplyError) Refused() bool { return e.Status < http.StatusInternalServerError }

// UnavailableError means that no answer came. The request may have been carried out or not; a
// handoff may be sent again as it is, because the server accepts its key at most once.
type UnavailableError struct {
	// Code is CONNECTION, NO_RESPONDERS, PERMISSION_DENIED, TIMEOUT or INTERRUPTED; TOWN_PAUSED or
	// WORLD_PAUSED if a handoff waits for the end of a pause; INVALID_RESULT if the result does not
	// verify, and INVALID_ANSWER if another answer breaks the contract.
	Code    string
	Message string
	Cause   error
}

func unavailable(code string, cause error, format string, args ...any) *UnavailableError {
	return &UnavailableError{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Error gives the machine code and the sentence.
func (e *UnavailableError) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Codes of an UnavailableError that the package itself looks at.
const (
	codeConnection   = "CONNECTION"
	codeNoResponders = "NO_RESPONDERS"
	codeDenied       = "PERMISSION_DENIED"
	codeTimeout      = "TIMEOUT"
	codeInvalid      = "INVALID_ANSWER"
)

// read takes the members of an error reply's body.
func (e *ReplyError) read(data []byte) {
	var body messages.Error
	if err := json.Unmarshal(data, &body); err == nil && body.Error.Code != "" {
		e.Code, e.Message, e.Details = body.Error.Code, body.Error.Message, body.Error.Details
		e.Body = data
		return
	}
	e.Code, e.Message = "UNKNOWN", ""
	e.Body = messages.ErrorBody(e.Code, fmt.Sprintf("the server replied with %d and no body", e.Status), nil)
}

func tooLarge(size int, limit int64) *ReplyError {
	e := &ReplyError{
		Status: http.StatusRequestEntityTooLarge, Code: string(schemas.CodePayloadTooLarge),
		Message: fmt.Sprintf("the request has %d bytes, this NATS server takes %d", size, limit),
	}
	e.Body = messages.ErrorBody(e.Code, e.Message, nil)
	return e
}
