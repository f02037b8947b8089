package handoffctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/tool/verify"
	"worldengine/worldengine/messages"
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

// commandError is an error that is not a server's reply.
type commandError struct {
	status  int // exitFailed or exitUsage
	message string
	details []schemas.Violation
}

func (e *commandError) Error() string { return e.message }

// usagef returns the error of an unusable command line, or of an unusable file that it names.
func usagef(format string, args ...any) error {
	return &commandError{status: exitUsage, message: fmt.Sprintf(format, args...)}
}

// usage is usagef of another error's text; a commandError stays.
func usage(err error) error {
	if _, own := errors.AsType[*commandError](err); own {
		return err
	}
	return usagef("%s", sentence(err))
}

// failedf returns the error of a command that has printed its findings, if an expectation failed.
func failedf(format string, args ...any) error {
	return &commandError{status: exitFailed, message: fmt.Sprintf(format, args...)}
}

// failedIf is failedf if an expectation failed, else nil.
func failedIf(failed bool, format string, args ...any) error {
	if !failed {
		return nil
	}
	return failedf(format, args...)
}

// invalid returns a usage error with the violations in a document.
func invalid(document string, err error) error {
	return &commandError{status: exitUsage, message: document + " is not valid",
		details: verify.Violations(err)}
}

// unavailable returns the error of a server that could not be reached or is in trouble.
func unavailable(code string, err error) error {
	return unavailablef(code, err, "%s", sentence(err))
}

// unavailablef is unavailable with another message than the cause's.
func unavailablef(code string, cause error, format string, args ...any) error {
	return &client.UnavailableError{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

func sentence(err error) string { return phrase.Sentence(err) }

// classify returns the machine code, the exit status and the details of an error.
func classify(err error) (code string, status int, details []schemas.Violation) {
	if own, ok := errors.AsType[*commandError](err); ok {
		if own.status == exitFailed {
			return "FAILED", exitFailed, nil
		}
		return "USAGE", exitUsage, own.details
	}
	if reply, ok := errors.AsType[*client.ReplyError](err); ok {
		if reply.Refused() {
			return reply.Code, exitRefused, reply.Details
		}
		return reply.Code, exitUnavailable, reply.Details
	}
	noReply, ok := errors.AsType[*client.UnavailableError](err)
	switch {
	case !ok:
		return "INTERNAL", exitUnavailable, nil
	case errors.Is(err, nats.ErrAuthorization), noReply.Code == permissionDenied:
		return noReply.Code, exitRefused, nil
	}
	return noReply.Code, exitUnavailable, nil
}

// fail prints an error and returns its exit status.
func (a *app) fail(err error) int {
	code, status, details := classify(err)
	if status != exitFailed && a.json() {
		message := sentence(err)
		if reply, ok := errors.AsType[*client.ReplyError](err); ok {
			message = reply.Message
		}
		_ = a.printRaw(messages.ErrorBody(code, message, details))
	}
	fmt.Fprintln(a.err, "handoffctl:", sentence(err))
	if len(details) == 1 && details[0].Path == "" &&
		strings.HasSuffix(sentence(err), details[0].Message) {
		details = nil // the sentence has them
	}
	for _, d := range details {
		fmt.Fprintf(a.err, "  %s\n", d)
	}
	if hint := hintOf(code, err); hint != "" {
		fmt.Fprintln(a.err, "  hint:", hint)
	}
	return status
}

// notef prints a note on standard error.
func (a *app) notef(format string, args ...any) {
	fmt.Fprintf(a.err, "handoffctl: note: "+format+"\n", args...)
}

// hintOf names the flags that may help against an error; "" if there are none.
func hintOf(code string, err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return "the server is there and refuses this user: give the right --user and --password, " +
			"--creds or --nkey (or $NATS_USER, …)"
	case code == permissionDenied && strings.Contains(err.Error(), "for Subscription to"):
		return "give the prefix of this user's own inboxes, --inbox-prefix _INBOX_<user> " +
			"($NATS_INBOX_PREFIX), where <user> is its name in the access file; handoffctl knows that " +
			"name from --user, not from --nkey, --creds or --tlscert"
	case code == "CONNECTION":
		return "check that handoffd runs, and give --server (or $NATS_URL) the address that it " +
			"prints behind ready"
	case code == string(wire.CodeTownExists):
		return "--replace replaces its present state, --expect HASH that state alone"
	case code == "NO_RESPONDERS":
		return "--world and --server say which world is asked, and where"
	case code == "TIMEOUT":
		for _, hint := range timeoutHints {
			for _, verb := range hint.verbs {
				if strings.Contains(err.Error(), "no answer to "+string(verb)+" ") {
					return "--timeout gives it more time; " + hint.text
				}
			}
		}
		return "--timeout gives it more time"
	}
	return ""
}

// timeoutHints say, for the verbs that change something, what to do after a TIMEOUT.
var timeoutHints = []struct {
	verbs []wire.Verb
	text  string
}{
	{[]wire.Verb{wire.Handoff}, "to send the handoff again is safe"},
	{[]wire.Verb{wire.TownPut, wire.TownPatch, wire.TownRemove, wire.RunRetry}, "a change of a town waits while a game applies " +
		"the command of a run, which handoffctl town get names and handoffctl run cancel ends"},
	{[]wire.Verb{wire.WorldsCreate, wire.WorldsRemove}, "handoffctl world list shows whether the world was made or removed"},
}
