package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
)

// wireError is what an error is on the wire.
type wireError struct {
	status     int    // Nats-Service-Error-Code
	code       string // the machine code
	retryAfter int    // milliseconds; 0 where asking again makes no sense
}

// Pauses that a client is asked to make, in milliseconds.
const (
	retrySoon    = 50
	retryLater   = 1000
	retryApplied = 250 // a game's answer is a few ticks away
)

// wireErrorOf maps every error of the engine to the wire. It is the only place that does.
func wireErrorOf(err error) wireError {
	var conflict *worldengine.ConflictError
	var regression *worldengine.RegressionError
	var transition *runevents.TransitionError
	var signal *worldengine.SignalError
	switch {
	case errors.Is(err, access.ErrForbidden):
		return wireError{403, "FORBIDDEN", 0}
	case errors.Is(err, access.ErrActorNotAllowed):
		return wireError{403, "ACTOR_NOT_ALLOWED", 0}
	case errors.As(err, &signal):
		return wireError{409, signal.Code, 0}
	case errors.Is(err, worldengine.ErrUnknownTown):
		return wireError{404, "UNKNOWN_TOWN", 0}
	case errors.Is(err, worldengine.ErrTownDamaged):
		return wireError{500, "TOWN_DAMAGED", 0}
	case errors.Is(err, worldengine.ErrUnknownResult):
		return wireError{404, "UNKNOWN_RESULT", 0}
	case errors.Is(err, worldengine.ErrUnknownRun):
		return wireError{404, "UNKNOWN_RUN", 0}
	case errors.Is(err, worldengine.ErrRunDamaged):
		return wireError{500, "RUN_DAMAGED", 0}
	case errors.Is(err, worldengine.ErrTownExists):
		return wireError{409, "TOWN_EXISTS", 0}
	case errors.As(err, &conflict):
		return wireError{409, "SNAPSHOT_CONFLICT", 0}
	case errors.As(err, &regression):
		return wireError{409, "EPOCH_REGRESSION", 0}
	case errors.As(err, &transition):
		return wireError{409, string(runevents.InvalidTransition), 0}
	case errors.Is(err, runevents.ErrRunEnding):
		return wireError{503, "RUN_ENDING", retrySoon}
	case errors.Is(err, worldengine.ErrRecordTooLarge):
		return wireError{413, "RECORD_TOO_LARGE", 0}
	case errors.Is(err, worldengine.ErrRunCancelled):
		return wireError{409, "RUN_CANCELLED", 0}
	case errors.Is(err, worldengine.ErrInProgress):
		return wireError{503, "EXECUTION_IN_PROGRESS", retryApplied}
	case errors.Is(err, worldengine.ErrOverloaded):
		return wireError{429, "OVERLOADED", retrySoon}
	case errors.Is(err, worldengine.ErrContended):
		return wireError{503, "CONTENDED", retrySoon}
	case errors.Is(err, worldengine.ErrReceiptsBehind):
		return wireError{503, "RECEIPTS_BEHIND", retrySoon}
	case errors.Is(err, worldengine.ErrEventsBehind):
		return wireError{503, "EVENTS_BEHIND", retryLater}
	case errors.Is(err, worldengine.ErrStopping):
		return wireError{503, "STOPPING", retryLater}
	case errors.Is(err, worldengine.ErrLogUnavailable), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return wireError{503, "LOG_UNAVAILABLE", retryLater}
	}
	return wireError{500, "INTERNAL", 0}
}

// errorBody is the body of an error reply (schema error.v1).
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code    string              `json:"code"`
	Message string              `json:"message"`
	Details []schemas.Violation `json:"details"`
}

// fail answers with err, and logs in full what is ours.
func (s *Service) fail(replyTo string, err error) {
	var invalid *schemas.ValidationError
	if wire := wireErrorOf(err); !errors.As(err, &invalid) && wire.status >= 500 &&
		!errors.Is(err, worldengine.ErrInProgress) {
		s.config.Logger.Error("a request failed", "code", wire.code, "error", err)
	}
	msg, marshalErr := errorReply(err)
	if marshalErr != nil {
		s.config.Logger.Error("an error cannot be written", "error", marshalErr)
		return
	}
	msg.Subject = replyTo
	s.respond(msg)
}

// errorReply returns the message that tells err. What is the client's doing is said in full; what is
// ours is said in short.
func errorReply(err error) (*nats.Msg, error) {
	body := errorDetail{Details: []schemas.Violation{}}
	var wire wireError
	var invalid *schemas.ValidationError
	if errors.As(err, &invalid) {
		wire = wireError{status: 400, code: string(invalid.Code)}
		if invalid.Code == schemas.CodePayloadTooLarge {
			wire.status = 413
		}
		body.Message, body.Details = sentence(err), invalid.Violations
	} else {
		wire = wireErrorOf(err)
		body.Message = sentence(inShort(err, wire.status))
		body.Details = append(body.Details, detailsOf(err)...)
	}
	body.Code = wire.code
	data, marshalErr := json.Marshal(errorBody{body})
	if marshalErr != nil {
		return nil, marshalErr
	}
	header := nats.Header{
		micro.ErrorCodeHeader: {strconv.Itoa(wire.status)},
		micro.ErrorHeader:     {headerText(body.Message)},
	}
	if wire.retryAfter > 0 {
		header[worldengine.RetryAfterHeader] = []string{strconv.Itoa(wire.retryAfter)}
	}
	return &nats.Msg{Data: data, Header: header}, nil
}

// inShort leaves out of the engine's own troubles what is only of use in its log.
func inShort(err error, status int) error {
	if status < 500 {
		return err
	}
	for _, known := range []error{
		worldengine.ErrReceiptsBehind, worldengine.ErrEventsBehind, worldengine.ErrContended,
		worldengine.ErrStopping, worldengine.ErrLogUnavailable, worldengine.ErrInProgress, runevents.ErrRunEnding,
		worldengine.ErrTownDamaged, worldengine.ErrRunDamaged,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errInternal
}

// errInternal is what a client is told of a defect.
var errInternal = errors.New("internal error; it is in the server's log")

// detailsOf returns the places of a request that an error of the engine is about.
func detailsOf(err error) []schemas.Violation {
	var transition *runevents.TransitionError
	if !errors.As(err, &transition) {
		return nil
	}
	return []schemas.Violation{{
		Path:    schemas.Pointer("events", transition.Index, "eventType"),
		Message: "must be a valid transition, but " + transition.AttemptedState + " cannot follow",
	}}
}

// tooLarge refuses a payload before it is read.
func tooLarge(size, limit int) error {
	return &schemas.ValidationError{
		Code: schemas.CodePayloadTooLarge,
		Violations: []schemas.Violation{{
			Message: fmt.Sprintf("has %d bytes, at most %d are read", size, limit),
		}},
	}
}
