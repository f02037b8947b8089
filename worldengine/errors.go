package worldengine

import (
	"errors"
	"fmt"
	"time"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/history"
	"worldengine/worldengine/queue"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Errors that a caller of the engine meets. Bad input is a *schemas.ValidationError; every other
// error is the engine's own trouble, and the client may send the request again: nothing was changed, or the
// same question finds what was done.
var (
	// ErrOverloaded: a bounded queue is full. Ask again after a pause.
	ErrOverloaded = queue.ErrOverloaded
	// ErrStopping: the engine is draining. Ask another instance, or this one after its restart.
	ErrStopping = queue.ErrStopping

	// ErrReceiptsBehind: the receipts have not followed the log yet, so it is not known whether a key
	// is free. Nothing was judged; ask again.
	ErrReceiptsBehind = commitlog.ErrReceiptsBehind

	// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will be a
	// result.
	ErrInProgress = errors.New("worldengine: the handoff is accepted and its command is being applied; ask again")

	// ErrUnknownTown: there is no such town.
	ErrUnknownTown = town.ErrUnknown

	// ErrRevisionGone: the log does not keep such a revision of the town, or the town never had it.
	ErrRevisionGone = history.ErrRevisionGone

	// ErrUnknownResult: no handoff with that key was accepted within the dedupe retention.
	ErrUnknownResult = errors.New("worldengine: no handoff with this key was accepted")
)

// PausedError: the town, or the world, was still paused when the handoff had waited for it for
// Config.PauseWait. Nothing was judged and the key is free, unless it was accepted before the pause: send
// the handoff again after the pause.
type PausedError struct {
	TownID string
	World  bool // the world is paused, and not the town alone
	By     *commitlog.PausedBy
	RunID  string // the run of the delivery, which is cancelled unless it was accepted
	// Accepted says that the handoff was accepted, and that a game has its command after the pause.
	Accepted bool
}

// Code returns the code of the error reply.
func (e *PausedError) Code() wire.Code {
	if e.World {
		return wire.CodeWorldPaused
	}
	return wire.CodeTownPaused
}

// Error says who has paused what and why, and what to do.
func (e *PausedError) Error() string {
	if e.Accepted {
		return "worldengine: " + e.reason() + " The handoff was accepted before, and its command is applied after the " +
			"pause; send the same handoff again then for its result."
	}
	return "worldengine: " + e.reason() + " Nothing was judged; send the same handoff again after the pause."
}

// reason says who has paused what and why.
func (e *PausedError) reason() string {
	what := "The world"
	if !e.World {
		what = fmt.Sprintf("The town %q", e.TownID)
	}
	text := fmt.Sprintf("%s is paused by %s since %s", what, e.By.ActorID, e.By.At.Format(time.RFC3339))
	if e.By.Reason != "" {
		text += ": " + e.By.Reason
	}
	return text + "."
}

// CancelledError is runs.ErrRunCancelled for the client whose handoff waited: the run of the delivery was
// cancelled.
type CancelledError struct{ RunID string }

// Error names the run, and says what the client may do.
func (e *CancelledError) Error() string {
	return runs.ErrRunCancelled.Error() + ": run " + e.RunID + ". Nothing was judged, and the key is free: " +
		"the same handoff may be sent again."
}

// Unwrap returns runs.ErrRunCancelled.
func (e *CancelledError) Unwrap() error { return runs.ErrRunCancelled }
