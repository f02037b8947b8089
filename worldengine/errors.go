package worldengine

import (
	"errors"

	"worldengine/worldengine/game"
	"worldengine/worldengine/history"
	"worldengine/worldengine/index"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/town"
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
	// be a result. If the run is known the error is a *WaitError.
	ErrInProgress = game.ErrInProgress

	// ErrUnknownTown: there is no such town.
	ErrUnknownTown = town.ErrUnknown

	// ErrRevisionGone: the log does not keep such a revision of the town, or the town never had it.
	ErrRevisionGone = history.ErrRevisionGone

	// ErrUnknownResult: no handoff with that key was accepted, as far as the log goes back.
	ErrUnknownResult = errors.New("worldengine: no handoff with this key was accepted")
)

// WaitError is for a client whose request waited, and gets no result.
type WaitError = game.WaitError
