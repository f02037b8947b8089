package worldengine

import (
	"errors"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/history"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/waiting"
)

// Errors that a caller of the engine meets. Bad input is a *schemas.ValidationError; every other
// error is the engine's own trouble, and the client may send the request again: nothing was
// changed, or the same question finds what was done.
var (
	// ErrOverloaded: a bounded queue is full. Ask again after a pause.
	ErrOverloaded = queue.ErrOverloaded
	// ErrStopping: the engine is draining. Ask another instance, or this one after its restart.
	ErrStopping = queue.ErrStopping

	// ErrReceiptsBehind: the receipts have not followed the log yet, so it is not known whether a
	// key is free. Nothing was judged; ask again.
	ErrReceiptsBehind = commitlog.ErrReceiptsBehind

	// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will
	// be a result.
	ErrInProgress = errors.New("worldengine: the handoff is accepted and its command is being " +
		"applied; ask again")

	// ErrUnknownTown: there is no such town.
	ErrUnknownTown = town.ErrUnknown

	// ErrRevisionGone: the log does not keep such a revision of the town, or the town never had it.
	ErrRevisionGone = history.ErrRevisionGone

	// ErrUnknownResult: no handoff with that key was accepted within the dedupe retention.
	ErrUnknownResult = errors.New("worldengine: no handoff with this key was accepted")
)

// PausedError refuses a handoff that has waited for the end of a pause.
type PausedError = waiting.PausedError

// CancelledError is runs.ErrRunCancelled for the client whose handoff waited: the run of the
// delivery was cancelled.
type CancelledError struct {
	RunID string
	// Accepted says that the handoff was accepted, and that its command was pending.
	Accepted bool
}

// Error names the run, and says what the client may do.
func (e *CancelledError) Error() string {
	if e.Accepted {
		return runs.ErrRunCancelled.Error() + ": run " + e.RunID +
			". Its command is not asked for any more, and the " +
			"key is free: the same handoff may be sent again."
	}
	return runs.ErrRunCancelled.Error() + ": run " + e.RunID +
		". Nothing was judged, and the key is free: " +
		"the same handoff may be sent again."
}

// Unwrap returns runs.ErrRunCancelled.
func (e *CancelledError) Unwrap() error { return runs.ErrRunCancelled }
