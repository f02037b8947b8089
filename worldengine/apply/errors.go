package apply

import "errors"

// Errors of what applies commands. A definite answer is never an error: it is an Answer.
var (
	// ErrUnavailable: the command reached nobody, so it is not applied. Ask again.
	ErrUnavailable = errors.New("apply: nobody is there to apply the command")
	// ErrInDoubt: the command may have reached somebody, and nobody knows whether it is applied. Whoever
	// keeps to the id of an application can be asked again with it; of others, such as a server console,
	// the command must not be given twice.
	ErrInDoubt = errors.New("apply: it is not known whether the command is applied")
)
