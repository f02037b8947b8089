package plugin

import (
	"time"

	"worldengine/worldengine/internal/core/apply"
)

type (
	// Command is a command-apply.v1: the request of the engine to a game.
	Command = apply.Command
	// Answer is a command-applied.v1.
	Answer = apply.GameAnswer
	// Status is the state of a command in an answer. The set is closed.
	Status = apply.Status
)

// The statuses of an answer. Applied and Refused are definite; the others ask the engine to ask again.
const (
	Applied    = apply.Applied
	Refused    = apply.Refused
	Busy       = apply.Busy
	InProgress = apply.InProgress
)

// ErrUnavailable: the command did not reach the game, so it is not applied. The engine asks again.
var ErrUnavailable = apply.ErrUnavailable

// Done answers a command that is applied, with the expected state.
func Done(c *Command) Answer { return apply.Done(c) }

// Refuse answers a command that is not applied. reasonCode has upper-case words, message a sentence for
// people. If retryable, a new attempt may succeed.
func Refuse(c *Command, reasonCode, message string, retryable bool) Answer {
	return apply.Refuse(c, reasonCode, message, retryable)
}

// Later answers a command that is not begun (Busy) or not finished (InProgress). The engine asks again after
// a while, or if it is 0 after a time of its own.
func Later(c *Command, status Status, after time.Duration) Answer {
	return apply.Later(c, status, after)
}
