package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/wire"
)

// The exit statuses, as the package comment has them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnavailable = 4
)

// permissionDenied is the code of a refusal by NATS.
const permissionDenied = "PERMISSION_DENIED"

// usageError says that the command line, or a file that it names, cannot be used.
type usageError struct {
	message string
	details []schemas.Violation
}

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// failedError means that the command did its work and an expectation failed. The command has
// already printed what it found.
type failedError struct{ message string }

func (e *failedError) Error() string { return e.message }

// app is the environment of a command: its flags, its input and its outputs.
type app struct {
	flags    *globalFlags
	in       io.Reader
	out, err io.Writer
	terminal bool // whether out is one: elsewhere nothing is cut
	colours  bool // whether out shows them
	helped   bool // whether help was printed

	server *client.Client // nil until connect
}

// connect connects to the server, once. Commands get the client as an argument of Run, or call
// connect behind checks of their own; run closes the connection.
func (a *app) connect() (*client.Client, error) {
	if a.server != nil {
		return a.server, nil
	}
	if a.flags.Timeout <= 0 {
		return nil, usagef("--timeout must be above 0, not %s", a.flags.Timeout)
	}
	if err := wire.ValidateWorld(a.flags.World); err != nil {
		return nil, usagef("--world: %s", sentence(err))
	}
	nc, err := a.dial("handoffctl")
	if err != nil {
		return nil, err
	}
	a.server = &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}
	return a.server, nil
}

// dial makes one connection to the server, under a name that its operator sees.
func (a *app) dial(name string, more ...nats.Option) (*nats.Conn, error) {
	return a.dialBy(natsconn.Options.Connect, name, more)
}

// dialStreams makes a connection that may read and write the streams of the world: without
// credentials, with the key of the server's local operator.
func (a *app) dialStreams(name string, more ...nats.Option) (*nats.Conn, error) {
	if err := wire.ValidateWorld(a.flags.World); err != nil {
		return nil, usagef("--world: %s", sentence(err))
	}
	return a.dialBy(natsconn.Options.ConnectOperator, name, more)
}

func (a *app) dialBy(
	connect func(natsconn.Options, string, string, ...nats.Option) (*nats.Conn, error),
	name string, more []nats.Option,
) (*nats.Conn, error) {
	if err := a.flags.Connection.Check(); err != nil {
		return nil, usagef("%s", sentence(err))
	}
	nc, err := connect(a.flags.Connection.WithUserInbox(a.flags.Server), a.flags.Server, name,
		append(more, quiet)...)
	if err != nil {
		code := "CONNECTION"
		if errors.Is(err, natsconn.ErrOperatorKey) {
			code = "OPERATOR_KEY"
		}
		return nil, &client.UnavailableError{Code: code, Message: sentence(err), Cause: err}
	}
	if err := checkInbox(nc); err != nil {
		nc.Close()
		return nil, err
	}
	return nc, nil
}

// quiet keeps NATS from writing to standard error what the commands say in words.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

// checkInbox returns an error where the user may not subscribe to its inboxes, which every request
// takes.
func checkInbox(nc *nats.Conn) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = nc.Flush() // a refusal comes before its answer
	}
	if err != nil {
		return &client.UnavailableError{Code: "CONNECTION", Message: sentence(err), Cause: err}
	}
	if denied := nc.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
		return &client.UnavailableError{Code: permissionDenied, Cause: denied,
			Message: fmt.Sprintf(
				"this user may not read answers at %s: give the prefix of its own inboxes, "+
					"--inbox-prefix _INBOX_<user> ($NATS_INBOX_PREFIX), where <user> is its name "+
					"in the access file; handoffctl knows that name from --user, not from "+
					"--nkey, --creds or --tlscert", inbox)}
	}
	return nil
}

// json reports whether the output is for scripts.
func (a *app) json() bool { return a.flags.Output == "json" || a.raw() }

// raw reports whether the server's answer is printed as it came.
func (a *app) raw() bool { return a.flags.Output == "raw" }

// printf prints text for people.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// printRaw prints JSON as it came, with a newline unless the very bytes are asked for.
func (a *app) printRaw(data []byte) error {
	if a.raw() {
		_, err := a.out.Write(data)
		return err
	}
	return a.printLine(data)
}

// printAnswer prints an answer as JSON, or the table of it for people. A jsontext.Value is a reply
// as it came.
func (a *app) printAnswer(answer any, table func(w io.Writer)) error {
	if !a.json() {
		return a.printTable(table)
	}
	if raw, ok := answer.(jsontext.Value); ok {
		return a.printRaw(raw)
	}
	return a.printJSON(answer)
}

// printLine prints JSON with a newline.
func (a *app) printLine(data []byte) error {
	_, err := a.out.Write(append(bytes.TrimRight(data, "\n"), '\n'))
	return err
}

// printJSON prints v as one line of JSON.
func (a *app) printJSON(v any) error {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return a.printLine(data)
}

// fail prints an error and returns its exit status.
func (a *app) fail(err error) int {
	code, status, details, body := classify(err)
	if status != exitFailed && a.json() {
		if body == nil {
			body = client.ErrorBody(code, sentence(err), details)
		}
		_ = a.printRaw(body)
	}
	fmt.Fprintln(a.err, "handoffctl:", sentence(err))
	for _, d := range details {
		if len(details) == 1 && d.Path == "" && strings.HasSuffix(sentence(err), d.Message) {
			break // the sentence has it
		}
		fmt.Fprintf(a.err, "  %s: %s\n", orWhole(d.Path), d.Message)
	}
	if hint := hintOf(code, err); hint != "" {
		fmt.Fprintln(a.err, "  hint:", hint)
	}
	return status
}

// hintOf returns what the flags can do about an error of the connection, or "".
func hintOf(code string, err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return "the server is there and refuses who asks; --user and --password, --creds or " +
			"--nkey (or $NATS_USER, …) say who that is"
	case code == "CONNECTION":
		return "check that handoffd runs, and give --server (or $NATS_URL) the address that it " +
			"prints behind ready"
	case code == "NO_RESPONDERS":
		return "--world and --server say which world is asked, and where"
	case code == "TIMEOUT":
		return "--timeout gives it more time"
	}
	return ""
}

// classify returns the machine code, the exit status, the details and, where a server replied, the
// body of an error.
func classify(err error) (code string, status int, details []schemas.Violation, body []byte) {
	var failed *failedError
	var usage *usageError
	var refused *client.ReplyError
	var unavailable *client.UnavailableError
	switch {
	case errors.As(err, &failed):
		return "FAILED", exitFailed, nil, nil
	case errors.As(err, &usage):
		return "USAGE", exitUsage, usage.details, nil
	case errors.As(err, &refused):
		status := exitUnavailable
		if refused.Refused() {
			status = exitRefused
		}
		return refused.Code, status, refused.Details, refused.Body
	case errors.As(err, &unavailable):
		status := exitUnavailable
		if errors.Is(err, nats.ErrAuthorization) || unavailable.Code == permissionDenied {
			status = exitRefused
		}
		return unavailable.Code, status, nil, nil
	}
	return "INTERNAL", exitUnavailable, nil, nil
}

// invalid makes a usage error of what a document's check says; what names the document.
func invalid(what string, err error) error {
	return &usageError{message: what + " is not valid", details: violations(err)}
}

// violations returns what a document's check says, one by one.
func violations(err error) []schemas.Violation {
	var found *schemas.ValidationError
	if errors.As(err, &found) {
		return found.Violations
	}
	return []schemas.Violation{{Message: sentence(err)}}
}

// sentence is wire.Sentence.
func sentence(err error) string { return wire.Sentence(err) }

// isTerminal reports whether an input or output is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	nothing, err := os.Stat(os.DevNull) // a character device as well
	return err != nil || !os.SameFile(info, nothing)
}

// orWhole names the path of a violation.
func orWhole(path string) string {
	if path == "" {
		return "(the whole)"
	}
	return path
}

// lenient reads JSON for a tester who may want to send what is wrong with it.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
