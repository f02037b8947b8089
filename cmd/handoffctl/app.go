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

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/schemas"
)

// The exit statuses, as the package comment has them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnavailable = 4
)

// usageError says that the command line, or a file that it names, cannot be used.
type usageError struct {
	message string
	details []schemas.Violation
}

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// failedError says that what was asked for was done and did not turn out as it should. The command
// has already printed what it found.
type failedError struct{ message string }

func (e *failedError) Error() string { return e.message }

// app is what a command works with.
type app struct {
	flags    *globalFlags
	in       io.Reader
	out, err io.Writer
	colours  bool // whether out shows them
}

// connect connects to the server. The caller closes the client's connection.
func (a *app) connect() (*client.Client, error) {
	if a.flags.Timeout <= 0 {
		return nil, usagef("--timeout must be above 0, not %s", a.flags.Timeout)
	}
	nc, err := a.dial("handoffctl")
	if err != nil {
		return nil, err
	}
	return &client.Client{Conn: nc, World: a.flags.World, Timeout: a.flags.Timeout}, nil
}

// dial makes one connection to the server, under a name that its operator sees.
func (a *app) dial(name string, more ...nats.Option) (*nats.Conn, error) {
	nc, err := a.flags.Connection.Connect(a.flags.Server, name, more...)
	if err != nil {
		return nil, &client.UnavailableError{Code: "CONNECTION", Message: sentence(err), Cause: err}
	}
	return nc, nil
}

// json says whether the output is for scripts.
func (a *app) json() bool { return a.flags.Output == "json" }

// printf prints text for people.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, args...)
	return err
}

// printRaw prints JSON as it came, with a newline.
func (a *app) printRaw(data []byte) error {
	_, err := a.out.Write(append(bytes.TrimRight(data, "\n"), '\n'))
	return err
}

// printJSON prints v as one line of JSON.
func (a *app) printJSON(v any) error {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return a.printRaw(data)
}

// read reads a file that the command line names, - for standard input.
func (a *app) read(name string) ([]byte, error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(a.in)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, usagef("%v", err)
	}
	return data, nil
}

// fail tells an error and returns its exit status.
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
		fmt.Fprintf(a.err, "  %s: %s\n", orWhole(d.Path), d.Message)
	}
	return status
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
		return unavailable.Code, exitUnavailable, nil, nil
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

// sentence returns an error's text without the name of the package that it comes from.
func sentence(err error) string {
	text := err.Error()
	for _, prefix := range []string{"natsconn: ", "schemas: ", "handoff: ", "server: ", "bench: ", "worldengine: ", "backup: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// isTerminal says whether a person is at an input or output.
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

// colourful says whether out is a terminal that is to have colours (https://no-color.org).
func colourful(out io.Writer, env func(string) (string, bool)) bool {
	if without, _ := env("NO_COLOR"); without != "" {
		return false
	}
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
