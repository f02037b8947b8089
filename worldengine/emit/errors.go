package emit

import (
	"errors"
	"fmt"
	"time"

	"worldengine/schemas"
)

// ErrRegistry is returned when the registry cannot look up an eventId, or cannot write one down
// durably. The Emitter has sent nothing; emit the event again.
var ErrRegistry = errors.New("emit: the registry of event ids does not answer")

// AppendError is the error reply with which the append authority refused an event. The authority
// has stored nothing.
type AppendError struct {
	Status int // such as 400 and 409; 500 for a reply whose status is no number
	// Such as SCHEMA_VALIDATION_FAILED and INVALID_TRANSITION; UNKNOWN where it has none.
	Code       string
	Message    string // what happened, in a sentence
	Details    []schemas.Violation
	RetryAfter time.Duration // the least pause before the next try, 0 where the reply names none
}

// Error returns the code, the message and the details with their JSON paths.
func (e *AppendError) Error() string {
	text := fmt.Sprintf("emit: the append authority refused: %s: %s", e.Code, e.Message)
	for _, d := range e.Details {
		text += "; " + d.Path + ": " + d.Message
	}
	return text
}
