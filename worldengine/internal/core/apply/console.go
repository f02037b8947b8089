package apply

import (
	"context"
	"errors"

	"worldengine/worldengine/internal/kit/phrase"
)

// Console applies commands without a plugin. It does not know the ids of commands: a command that
// may have been sent must not be applied again.
type Console interface {
	// Login prepares the console for a command. Of the Session one method must be called, once.
	// Until then the console is busy. A command that the console refuses needs no session. An error is
	// an ErrUnavailable.
	Login(ctx context.Context, c *Command) (s Session, refused *GameAnswer, err error)
}

// Session is a console that is ready for a command.
type Session interface {
	// Send sends the command. After an error other than ErrUnavailable the command may be applied.
	Send(ctx context.Context) (GameAnswer, error)
	// Close sends nothing.
	Close()
}

// ConsoleResult returns the end of a console's attempt. ErrUnavailable is the only error after
// which the command was not applied.
func ConsoleResult(answer GameAnswer, err error) AttemptResult {
	switch {
	case NotApplied(err):
		return AttemptResult{Failure: &Failure{
			Reason: ReasonGameUnavailable, Message: truncated(phrase.Sentence(err)), Retryable: true,
		}}
	case err != nil:
		return RCON.FailInDoubt(phrase.Sentence(err))
	}
	return answer.Result()
}

// NotApplied reports whether err means that a console did not run the command.
func NotApplied(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInDoubt)
}
