// Package client asks a world engine over NATS: towns, results and runs, handoffs to execute, events as they come. Import
// it in an agent, a tool or a test. Programs in other languages have clients of their own, or use NATS with the names of
// worldengine/wire and the payloads of worldengine/messages.
//
//	engine, err := client.Connect("nats://127.0.0.1:4222", client.Options{})
//	town, err := engine.Town(ctx, "town-threatened")
//	h, err := handoff.New(handoff.Proposal{…})
//	outcome, err := engine.Send(ctx, h)
//
// Every request ends within its context and Client.Timeout. Until then it is repeated with the same
// bytes if no answer comes, or after a 429 or 503 whose reply names a pause. A request that changes
// something is not repeated if it may have been carried out, since the server could refuse the
// repetition because of the first request. A handoff, a run.append and an alert.ack may be repeated.
//
// An error is a *ReplyError (the server answered with an error) or an *UnavailableError (no answer
// came, or an invalid one). Commits, Events and Changes also yield a *LossError, and continue after
// it. docs/contracts.md has the verbs and the codes of errors.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/wire"
)

// defaultTimeout is the default of Client.Timeout.
const defaultTimeout = 30 * time.Second

// Client asks one world over one connection. It is safe for concurrent use; set its fields before
// the first call.
type Client struct {
	Conn *nats.Conn
	// World is the world's name.
	World string
	// Timeout bounds one request with all its repetitions; 30 s by default.
	Timeout time.Duration
	// Revision is the revision of the results of Send and Result.
	Revision handoff.Revision
	// OnPaused, unless nil, is called when a handoff of Send waits for the end of a pause, or for an
	// absent game. The goroutine that called Send calls it, before Send returns. why has the code
	// TOWN_PAUSED, WORLD_PAUSED or PLUGIN_ABSENT.
	OnPaused func(townID string, why *UnavailableError)
	// ApprovalWait is how long Send waits for a person's decision if a handoff needs one. After the
	// decision it sends the same bytes again. With 0 Send returns the result APPROVAL_REQUIRED at
	// once. OnApproval, unless nil, is called with that result when Send begins to wait, and then about
	// once a minute.
	ApprovalWait time.Duration
	OnApproval   func(*Outcome)
	// Trace, unless nil, returns the W3C trace context of a handoff that is sent with ctx; zero for
	// none. The plugin that applies the command gets it, and the run's events have it.
	Trace func(ctx context.Context) trace.Context
	// Header are further headers of every request; nil for none.
	Header nats.Header

	served atomic.Bool // a server has answered on this connection
}

// Credentials are the credentials that the NATS command line has too: a user with a password, a token, a file
// of credentials or of an NKey, and the files of TLS. None is ever logged.
type Credentials = natsconn.Options

// LoadEnvironment returns the servers' URL ("" if there is none) and the credentials from the environment
// variables of the NATS command line: NATS_URL, NATS_USER and so on. lookup is os.LookupEnv.
func LoadEnvironment(lookup func(string) (string, bool)) (url string, c Credentials) {
	return natsconn.LoadEnvironment(lookup)
}

// Options configure Connect. The zero value connects without credentials to the world main.
type Options struct {
	// Connection has the credentials. For a user with a password and no inbox prefix, the prefix is
	// _INBOX_<user>.
	Connection Credentials
	// World is the world's name; wire.DefaultWorld by default.
	World string
	// Name is the connection's name, for operators; "worldengine client" by default.
	Name string
	// NATS are further options of the connection, which take precedence.
	NATS []nats.Option
}

// pingInterval is how often a connection asks NATS whether it is there. After two questions without an
// answer, within 12 s, it connects to another node; with the interval of nats.go that takes up to 6
// minutes. A call of 30 s sends its last repetition after 14 s.
const pingInterval = 4 * time.Second

// Connect connects to one of the servers of urls (comma-separated; "" is 127.0.0.1:4222). The client
// reconnects until it is closed or the server refuses it. The first connection must succeed. The
// error is an *UnavailableError with the code CONNECTION, or an error about an invalid Options.World.
func Connect(urls string, o Options) (*Client, error) {
	if o.World != "" {
		if err := wire.ValidateWorld(o.World); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	urls = cmp.Or(urls, nats.DefaultURL)
	nc, err := o.Connection.WithUserInbox(urls).Connect(urls, cmp.Or(o.Name, "worldengine client"),
		append([]nats.Option{nats.MaxReconnects(-1), nats.PingInterval(pingInterval)}, o.NATS...)...)
	if err != nil {
		return nil, unavailable(codeConnection, err, "%s", err)
	}
	// Only after a flush does the connection know how large the messages of its account may be.
	if nc.IsConnected() { // with nats.RetryOnFailedConnect it may not be
		_ = nc.FlushTimeout(defaultTimeout) // if the connection is lost again, a request reports it
	}
	return New(nc, o.World), nil
}

// New returns a client of a world ("" is wire.DefaultWorld) over the caller's connection.
func New(nc *nats.Conn, world string) *Client {
	return &Client{Conn: nc, World: cmp.Or(world, wire.DefaultWorld)}
}

// Close closes the connection. Calls in progress return an error.
func (c *Client) Close() { c.Conn.Close() }

// IsCode reports whether err is an error of this package with a code, such as wire.CodeUnknownTown.
func IsCode(err error, code wire.Code) bool {
	if refused, is := errors.AsType[*ReplyError](err); is {
		return refused.Code == string(code)
	}
	unavailable, is := errors.AsType[*UnavailableError](err)
	return is && unavailable.Code == string(code)
}

// bounded returns ctx with the client's timeout plus wait as its deadline.
func (c *Client) bounded(
	ctx context.Context, wait time.Duration,
) (context.Context, context.CancelFunc) {
	return context.WithTimeout(undated{ctx}, cmp.Or(c.Timeout, defaultTimeout)+wait)
}

// undated hides a context's deadline, though the context still ends. Otherwise WithTimeout would
// rely on the timer of a parent with an earlier deadline. If the clock was set forward, that timer
// may fire much later than it should.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, is bool) { return time.Time{}, false }

// ReplyError is an error reply. With Status 4xx the server refuses the request: change the request,
// or after 409 and 429 send it later. With 5xx the server has a problem.
type ReplyError struct {
	// Status is the Nats-Service-Error-Code.
	Status int
	// Code is the machine code; "UNKNOWN" if the reply has none.
	Code string
	// Message is a sentence for people. Details name places in the request.
	Message string
	Details []schemas.Violation
	// RetryAfter is the pause before a repetition; 0 if a repetition is useless.
	RetryAfter time.Duration
	// RunID is the run that the reply names, such as the run whose command is being applied; "" for
	// none.
	RunID string
}

// Error returns the machine code, the status and the message, without the details.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message)
}

// Refused reports whether the server refuses the request; otherwise the server has a problem.
func (e *ReplyError) Refused() bool { return e.Status < http.StatusInternalServerError }

// UnavailableError means that no answer came, or an invalid one. The request may have been carried
// out. A handoff may be sent again without a change, since the server accepts its key at most once.
type UnavailableError struct {
	// Code is CONNECTION, NO_RESPONDERS, PERMISSION_DENIED, TIMEOUT or INTERRUPTED. TOWN_PAUSED,
	// WORLD_PAUSED or PLUGIN_ABSENT means that a handoff waits for the end of a pause or for an
	// absent game; INVALID_RESULT means that a result is invalid; INVALID_ANSWER means that another
	// answer is.
	Code    string
	Message string
	Cause   error
}

func unavailable(code string, cause error, format string, args ...any) *UnavailableError {
	return &UnavailableError{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// Error returns the machine code and the message.
func (e *UnavailableError) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }

// Codes of an UnavailableError.
const (
	codeConnection   = "CONNECTION"
	codeNoResponders = "NO_RESPONDERS"
	codeDenied       = "PERMISSION_DENIED"
	codeTimeout      = "TIMEOUT"
	codeInvalid      = "INVALID_ANSWER"
)
