package game

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will be a
// result. If the run is known the error is the *WaitError of InProgress.
var ErrInProgress = errors.New("worldengine: the handoff is accepted and its command is being " +
	"applied; send the same handoff again to get its result")

// WaitError is for a client whose request waited, and gets no result.
type WaitError struct {
	// Code is the code of the error reply, and RetryAfter its pause; 0 for the code's own.
	Code       wire.Code
	RetryAfter time.Duration
	// RunID is the run of the handoff; "" if the request is no handoff.
	RunID string
	// SignalID is the run of the signal that paused the town or the world; else "".
	SignalID string
	// Pending says that the handoff is accepted, and that its command goes on waiting. Otherwise its
	// run, if it was recorded, is cancelled.
	Pending bool
	// Reason is the cause; Next is the effect on the request, and the client's next step.
	Reason, Next string
	cause        error
}

// Error has the reason and the next step.
func (e *WaitError) Error() string { return "worldengine: " + e.Reason + " " + e.Next }

// Unwrap returns ErrInProgress, machine.ErrRunCancelled or commitlog.ErrLogUnavailable if the error
// is one, else nil.
func (e *WaitError) Unwrap() error { return e.cause }

// Paused is the end of a wait for the end of a pause, of the world or of a town alone. The handoff
// of a run that is pending was accepted before the pause.
func Paused(townID string, world bool, by *commitlog.PausedBy, runID string, pending bool) *WaitError {
	e := &WaitError{Code: wire.CodeTownPaused, RunID: runID, SignalID: by.SignalID, Pending: pending,
		Next: "Nothing was judged; send the same handoff again after the pause."}
	paused := fmt.Sprintf("The town %q", townID)
	if world {
		e.Code, paused = wire.CodeWorldPaused, "The world"
	}
	e.Reason = fmt.Sprintf("%s is paused by %s since %s", paused, by.ActorID,
		by.At.Format(time.RFC3339))
	if by.Reason != "" {
		e.Reason += ": " + by.Reason
	}
	e.Reason += "."
	if pending {
		e.Next = "The handoff was accepted before, and its command is applied after the pause; send " +
			"the same handoff again then for its result."
	}
	return e
}

// Absent is the end of a wait for a game that is away: of the town's plugin or console, which it has
// not had since a time. The command of the run before, which is pending, waits for the game too; ""
// if the run is the one that waits, and is pending. Without a run the request is no handoff.
func Absent(townID string, via apply.Binding, since time.Time, runID, before string) *WaitError {
	e := &WaitError{Code: wire.CodePluginAbsent, RunID: runID,
		Next: "Nothing was judged, and the key is free; send the same handoff again when the game is " +
			"back."}
	absence := noGame(townID, via, since)
	if before == "" {
		e.Pending, e.RetryAfter = true, wire.RetryLater
		e.Reason = fmt.Sprintf("the handoff is accepted as run %s, and its command goes on "+
			"waiting: the %s;", runID, absence)
		e.Next = "send the same handoff again for its result, or cancel the run"
		return e
	}
	e.Reason = fmt.Sprintf("The %s, and the command of run %s, which is before this one, waits for it.",
		absence, before)
	if runID == "" {
		e.Next = "Nothing was stored; send the request again when the game is back, or cancel that " +
			"run first."
	}
	return e
}

func noGame(townID string, via apply.Binding, since time.Time) string {
	return fmt.Sprintf("town %q has had no %s since %s", townID, via.Game(),
		since.UTC().Format(time.RFC3339))
}

// Cancelled is for the client of a run that was cancelled while its handoff waited, or while its
// command was pending.
func Cancelled(runID string, pending bool) *WaitError {
	e := &WaitError{Code: wire.CodeRunCancelled, RunID: runID, cause: machine.ErrRunCancelled,
		Next: "Nothing was judged, and the key is free: the same handoff may be sent again."}
	e.Reason = strings.TrimPrefix(machine.ErrRunCancelled.Error(), "worldengine: ") + ": run " + runID + "."
	if pending {
		e.Next = "Its command is not asked for any more, and the key is free: the same handoff may " +
			"be sent again."
	}
	return e
}

// InProgress is ErrInProgress with the run of the command. absent is since when the town has had no
// game; zero if it has one.
func InProgress(runID, townID string, via apply.Binding, absent time.Time) *WaitError {
	e := &WaitError{Code: wire.CodeInProgress, RunID: runID, Pending: true, cause: ErrInProgress}
	if absent.IsZero() {
		e.Reason = "the handoff is accepted and its command is being applied;"
		e.Next = "send the same handoff again to get its result (run " + runID + ")"
		return e
	}
	e.RetryAfter = wire.RetryLater
	e.Reason = fmt.Sprintf("the handoff is accepted as run %s, and its command waits: the %s;", runID,
		noGame(townID, via, absent))
	e.Next = "send the same handoff again to get its result, or cancel the run"
	return e
}

// EndLost is for the client of a handoff whose run has ended, if the log does not keep the end and
// the key has another run's result: it failed and was retried, or was cancelled. The same handoff
// again gets the key's present result.
func EndLost(runID string) *WaitError {
	return &WaitError{Code: wire.CodeLogUnavailable, RetryAfter: wire.RetrySoon, RunID: runID,
		cause: commitlog.ErrLogUnavailable,
		Reason: "run " + runID + " of the handoff has ended, and the log does not keep how any more; " +
			"its key has the result of another run since:",
		Next: "send the same handoff again to learn which"}
}

// OfRetry returns err as the error of a run's retry, which was not judged: the run and the result of
// its key are as they were, and the key is not free.
func OfRetry(runID string, err error) error {
	waited, ok := errors.AsType[*WaitError](err)
	if !ok || errors.Is(err, commitlog.ErrLogUnavailable) { // the outcome is not known
		return err
	}
	e := *waited
	if e.Code == wire.CodeRunCancelled {
		e.Reason = "The retry, run " + e.RunID + ", was cancelled."
	}
	e.Next = "Run " + runID + " is as it was, and so is the result of its key: retry it again."
	return &e
}

// Ends returns the cancellation of a handoff's run that is not judged because of err. The run is
// cancelled with the code of a pause, or of a game that is away; other errors have no code there.
func Ends(err error) machine.Cancellation {
	if waited, ok := errors.AsType[*WaitError](err); ok && waited.cause == nil {
		return machine.Cancellation{
			SignalID: waited.SignalID, Code: string(waited.Code), Reason: waited.Reason,
		}
	}
	return machine.Cancellation{Reason: "The handoff was not judged: " + wire.Sentence(err)}
}
