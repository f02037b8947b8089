package apply

import "errors"

// Errors of plugins and consoles. A definite answer is never an error: it is an Answer.
var (
	// ErrUnavailable: the command reached no plugin and no console, so it is not applied. Ask
	// again.
	ErrUnavailable = errors.New("apply: the command reached no plugin or console")
	// ErrInDoubt: the command may have arrived, and may be applied. A plugin, which knows the ids
	// of its applications, can be asked again with the same id; a server console cannot: it would
	// apply the command twice.
	ErrInDoubt = errors.New("apply: it is not known whether the command is applied")
)
