package worldengine

import (
	"errors"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/history"
	"worldengine/worldengine/index"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
	"worldengine/worldengine/waiting"
)

// Errors of the engine. Bad input is a *schemas.ValidationError; after every other error the client
// may send the request again: nothing was changed, or the same request finds the change.
var (
	// ErrOverloaded: a bounded queue is full. Ask again after a pause.
	ErrOverloaded = queue.ErrOverloaded
	// ErrStopping: the engine is draining. Ask another writer, or this one after its restart.
	ErrStopping = queue.ErrStopping

	// ErrIndexBehind: the index has not followed the log yet, so it is not known whether a key is
	// free. Nothing was judged; ask again.
	ErrIndexBehind = index.ErrBehind

	// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will
	// be a result. If the run is known the error is an *apply.InProgressError.
	ErrInProgress = apply.ErrInProgress

	// ErrUnknownTown: there is no such town.
	ErrUnknownTown = town.ErrUnknown

	// ErrRevisionGone: the log does not keep such a revision of the town, or the town never had it.
	ErrRevisionGone = history.ErrRevisionGone

	// ErrUnknownResult: no handoff with that key was accepted, as far as the log goes back.
	ErrUnknownResult = errors.New("worldengine: no handoff with this key was accepted")
)

// PausedError refuses a handoff that has waited for the end of a pause.
type PausedError = waiting.PausedError

// AbsentError is for a request that has waited for a game that is away.
type AbsentError = waiting.AbsentError

// CancelledError is machine.ErrRunCancelled for the client whose handoff waited.
type CancelledError = waiting.CancelledError
