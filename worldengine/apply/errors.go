package apply

import (
	"errors"
	"fmt"
	"time"
)

// Errors of plugins and consoles. A definite answer is never an error: it is an Answer.
var (
	// ErrUnavailable: the command reached no plugin and no console, so it is not applied. Ask
	// again.
	ErrUnavailable = errors.New("apply: the command reached no plugin or console")
	// ErrInDoubt: the command may have arrived, and may be applied. A plugin, which knows the ids
	// of its applications, can be asked again with the same id; a server console cannot: it would
	// apply the command twice.
	ErrInDoubt = errors.New("apply: it is not known whether the command is applied")
	// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will
	// be a result.
	ErrInProgress = errors.New("worldengine: the handoff is accepted and its command is being " +
		"applied; send the same handoff again to get its result")
)

// InProgressError is ErrInProgress with the run.
type InProgressError struct {
	RunID, TownID string
	Via           Binding
	// AbsentSince is since when the town has had no plugin or console; zero if it has one.
	AbsentSince time.Time
}

// Error names the run and the cause of its wait, and the client's choices.
func (e *InProgressError) Error() string {
	if e.AbsentSince.IsZero() {
		return ErrInProgress.Error() + " (run " + e.RunID + ")"
	}
	return fmt.Sprintf("worldengine: the handoff is accepted as run %s, and its command waits: "+
		"the town %q has had no %s since %s; send the same handoff again to get its result, "+
		"or cancel the run", e.RunID, e.TownID, e.Via.Game(),
		e.AbsentSince.UTC().Format(time.RFC3339))
}

// Unwrap returns ErrInProgress.
func (e *InProgressError) Unwrap() error { return ErrInProgress }
