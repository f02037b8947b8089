package waiting

import (
	"errors"
	"fmt"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// PausedError: the town, or the world, was still paused at the end of the handoff's longest wait.
// Nothing was judged and the key is free, unless it was accepted before the pause: send the handoff
// again after the pause.
type PausedError struct {
	TownID string
	World  bool // the world is paused, and not the town alone
	By     *commitlog.PausedBy
	RunID  string // the run of the delivery, which is cancelled unless it was accepted
	// Accepted says that the handoff was accepted; a game gets its command after the pause.
	Accepted bool
}

// Code returns the code of the error reply.
func (e *PausedError) Code() wire.Code {
	if e.World {
		return wire.CodeWorldPaused
	}
	return wire.CodeTownPaused
}

// Error has the pause's author, reason and scope, and the client's next step.
func (e *PausedError) Error() string {
	if e.Accepted {
		return "worldengine: " + e.Reason() + " The handoff was accepted before, and its command " +
			"is applied after the pause; send the same handoff again then for its result."
	}
	return "worldengine: " + e.Reason() +
		" Nothing was judged; send the same handoff again after the pause."
}

// Reason has the pause's author, reason and scope.
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

// AbsentError: the town's game was still away at the end of the request's longest wait. Unless it is
// Accepted, nothing was judged or stored: the request waited behind a command that waits for the
// game. Send it again when the game is back.
type AbsentError struct {
	TownID string
	// Via is the binding of the command that waits.
	Via apply.Binding
	// Since is since when the town has had no plugin or console.
	Since time.Time
	// RunID is the run of the delivery, which is cancelled unless it was accepted; "" if the
	// request is no handoff.
	RunID string
	// Before is the run of the command that the request waited behind; "" if it is Accepted.
	Before string
	// Accepted says that the handoff was accepted, and that its command still waits.
	Accepted bool
}

// Error names the town without a game, the effect on the request, and the next step.
func (e *AbsentError) Error() string {
	switch {
	case e.Accepted:
		return fmt.Sprintf("worldengine: the handoff is accepted as run %s, and its command goes "+
			"on waiting: the town %q has had no %s since %s; send the same handoff again "+
			"for its result, or cancel the run", e.RunID, e.TownID, e.Via.Game(), e.at())
	case e.RunID == "":
		return "worldengine: " + e.Reason() + " Nothing was stored; send the request again when " +
			"the game is back, or cancel that run first."
	}
	return "worldengine: " + e.Reason() +
		" Nothing was judged, and the key is free; send the same handoff again when the game is " +
		"back."
}

// Reason names the cause of the wait of a request that was not accepted.
func (e *AbsentError) Reason() string {
	return fmt.Sprintf("The town %q has had no %s since %s, and the command of run %s, which "+
		"is before this one, waits for it.", e.TownID, e.Via.Game(), e.at(), e.Before)
}

func (e *AbsentError) at() string { return e.Since.UTC().Format(time.RFC3339) }

// Ends returns the cancellation of a handoff's run that is not judged because of err.
func Ends(err error) machine.Cancellation {
	var paused *PausedError
	var absent *AbsentError
	switch {
	case errors.As(err, &paused):
		return machine.Cancellation{
			SignalID: paused.By.SignalID, Code: string(paused.Code()), Reason: paused.Reason(),
		}
	case errors.As(err, &absent):
		return machine.Cancellation{
			Code: string(wire.CodePluginAbsent), Reason: absent.Reason(),
		}
	}
	return machine.Cancellation{Reason: "The handoff was not judged: " +
		wire.Sentence(err)}
}

// CancelledError is machine.ErrRunCancelled for the client whose handoff waited.
type CancelledError struct {
	RunID string
	// Accepted says that the handoff was accepted, and that its command was pending.
	Accepted bool
}

// Error names the run, and the client's next step.
func (e *CancelledError) Error() string {
	if e.Accepted {
		return machine.ErrRunCancelled.Error() + ": run " + e.RunID +
			". Its command is not asked for any more, and the " +
			"key is free: the same handoff may be sent again."
	}
	return machine.ErrRunCancelled.Error() + ": run " + e.RunID +
		". Nothing was judged, and the key is free: " +
		"the same handoff may be sent again."
}

// Unwrap returns machine.ErrRunCancelled.
func (e *CancelledError) Unwrap() error { return machine.ErrRunCancelled }

// EndLostError is for the client of a handoff whose run has ended, if the log does not keep the end
// and the key has another run's result: it failed and was retried, or was cancelled. The same
// handoff again gets the key's present result.
type EndLostError struct{ RunID string }

// Error names the run, and the client's next step.
func (e *EndLostError) Error() string {
	return "worldengine: run " + e.RunID + " of the handoff has ended, and the log does not keep " +
		"how any more; its key has the result of another run since: send the same handoff again " +
		"to learn which"
}

// Unwrap returns commitlog.ErrLogUnavailable: the handoff's outcome is not known.
func (e *EndLostError) Unwrap() error { return commitlog.ErrLogUnavailable }

// RetryError is why a retry ended without a judgement: the run and its key's result are unchanged.
type RetryError struct {
	// RunID is the run that was to be tried again.
	RunID string
	why   error
	text  string
}

// OfRetry returns err as the error of a run's retry: it omits the texts that tell agents that their
// key is free, because a retried run's is not.
func OfRetry(runID string, err error) error {
	var paused *PausedError
	var absent *AbsentError
	var cancelled *CancelledError
	text := ""
	switch {
	case errors.As(err, &paused):
		text = paused.Reason()
	case errors.As(err, &absent):
		text = absent.Reason()
	case errors.As(err, &cancelled):
		text = "The retry, run " + cancelled.RunID + ", was cancelled."
	default:
		return err
	}
	return &RetryError{RunID: runID, why: err, text: text}
}

// Error has the cause, and the next step.
func (e *RetryError) Error() string {
	return "worldengine: " + e.text + " Run " + e.RunID +
		" is as it was, and so is the result of its key: retry it again."
}

// Unwrap returns the reason, a *PausedError, an *AbsentError or a *CancelledError.
func (e *RetryError) Unwrap() error { return e.why }
