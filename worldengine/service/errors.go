package service

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// errInternal stands for a panic, whose client gets INTERNAL.
var errInternal = errors.New("service: a request panicked")

// errorBody is the body of an error reply (schema error.v1).
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code    wire.Code           `json:"code"`
	Message string              `json:"message"`
	Details []schemas.Violation `json:"details"`
}

// fail answers a request with err, and releases its slot if it has one. It logs in full an error
// that is the server's trouble.
func (s *Service) fail(in *incoming, err error) {
	if errors.Is(err, worldengine.ErrOverloaded) { // the engine's queue has refused it
		pause := pauseFor(in.slots.Load(in.town))
		s.release(in)
		s.refuse(in, queueFull, pause)
		return
	}
	s.release(in)
	spec := specOf(err)
	s.observe(in, spec.Code)
	if spec.Status >= 500 && !spec.Routine {
		s.config.Logger.Error("a request failed", "code", spec.Code, "error", err)
	}
	msg, marshalErr := errorReply(err)
	if marshalErr != nil {
		s.config.Logger.Error("an error cannot be written", "error", marshalErr)
		return
	}
	s.respond(in, msg)
}

// errorReply returns the error reply for err (docs/contracts.md, "All errors").
func errorReply(err error) (*nats.Msg, error) {
	spec := specOf(err)
	body := errorDetail{Code: spec.Code, Message: spec.Text, Details: detailsOf(err)}
	data, marshalErr := json.Marshal(errorBody{body})
	if marshalErr != nil {
		return nil, marshalErr
	}
	header := nats.Header{
		wire.ErrorCodeHeader: {strconv.Itoa(spec.Status)},
		wire.ErrorHeader:     {headerText(body.Message)},
	}
	if spec.RetryAfter > 0 {
		header[wire.RetryAfterHeader] = []string{
			strconv.FormatInt(spec.RetryAfter.Milliseconds(), 10)}
	}
	if runID := runOf(err); runID != "" {
		header[wire.RunIDHeader] = []string{runID}
	}
	return &nats.Msg{Data: data, Header: header}, nil
}

// runOf returns the run of a handoff that waited and was not judged, or that is being applied; ""
// for any other error.
func runOf(err error) string {
	var paused *worldengine.PausedError
	var cancelled *worldengine.CancelledError
	var inProgress *apply.InProgressError
	var absent *waiting.AbsentError
	var lost *waiting.EndLostError
	switch {
	case errors.As(err, &lost):
		return lost.RunID
	case errors.As(err, &absent):
		return absent.RunID
	case errors.As(err, &inProgress):
		return inProgress.RunID
	case errors.As(err, &paused):
		return paused.RunID
	case errors.As(err, &cancelled):
		return cancelled.RunID
	}
	return ""
}

// detailsOf returns the places of a request that err is about, and an empty list where err is about
// none.
func detailsOf(err error) []schemas.Violation {
	var refused *schemas.ValidationError
	if errors.As(err, &refused) {
		return refused.Violations
	}
	var owned *runevents.OwnedError
	if errors.As(err, &owned) {
		message := "must not be the engine's"
		if owned.Member == "stepId" {
			message = "must be there and name a step that is not the engine's, since the run is " +
				"the engine's"
		}
		return []schemas.Violation{{
			Path: schemas.Pointer("events", owned.Index, owned.Member), Message: message,
		}}
	}
	if errors.Is(err, feed.ErrInvalidCursor) {
		return []schemas.Violation{{
			Path:    schemas.Pointer("after"),
			Message: "must be a sequence that the log has reached",
		}}
	}
	var transition *runevents.TransitionError
	if errors.As(err, &transition) {
		return []schemas.Violation{{
			Path: schemas.Pointer("events", transition.Index, "eventType"),
			Message: "must be a valid transition, but " + transition.AttemptedState +
				" cannot follow",
		}}
	}
	return []schemas.Violation{}
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
