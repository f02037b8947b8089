package waiting

import (
	"fmt"
	"time"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

// PausedError: the town, or the world, was still paused when the handoff had waited for it for as
// long as it may. Nothing was judged and the key is free, unless it was accepted before the pause:
// send the handoff again after the pause.
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
		return "worldengine: " + e.Reason() + " The handoff was accepted before, and its command " +
			"is applied after the pause; send the same handoff again then for its result."
	}
	return "worldengine: " + e.Reason() +
		" Nothing was judged; send the same handoff again after the pause."
}

// Reason says who has paused what and why.
func (e *PausedError) Reason() string {
	what := "The world"
	if !e.World {
		what = fmt.Sprintf("The town %q", e.TownID)
	}
	text := fmt.Sprintf("%s is paused by %s since %s", what, e.By.ActorID,
		e.By.At.Format(time.RFC3339))
	if e.By.Reason != "" {
		text += ": " + e.By.Reason
	}
	return text + "."
}

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
