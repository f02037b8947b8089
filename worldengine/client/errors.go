package client

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/schemas"
	"worldengine/worldengine/messages"
)

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
