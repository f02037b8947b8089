package waiting

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// ErrInProgress: a handoff with this key is accepted and being applied. Ask again: there will be a
// result. If the run is known the error is the *Error of StillApplying.
var ErrInProgress = errors.New("waiting: the handoff is accepted and its command is being " +
	"applied; send the same handoff again to get its result")

// Error answers a client whose request waited in vain.
type Error struct {
	// RetryAfter is the pause before a retry; 0 means the default of Code.
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

func (e *Error) Error() string { return "waiting: " + e.Reason + " " + e.Next }

// Unwrap returns ErrInProgress or machine.ErrRunCancelled if the error is one, else nil.
func (e *Error) Unwrap() error { return e.cause }

// Paused is the error of a request that waited too long for the end of a pause. If pending is set, the
// handoff was accepted before the pause.
func Paused(townID string, reason Reason, runID string, pending bool) *Error {
	by := reason.Pause
	e := &Error{Code: wire.CodeTownPaused, RunID: runID, SignalID: by.SignalID, Pending: pending,
		Next: "Nothing was judged; send the same handoff again after the pause."}
	paused := fmt.Sprintf("The town %q", townID)
	if reason.World {
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

// GameAbsent is the error of a request that waited too long for a town's plugin or console; since is
// the start of the absence. before is the run whose command is first in line; "" if that is the
// request's own run. runID is "" if the request is no handoff.
func GameAbsent(townID string, binding apply.Binding, since time.Time, runID, before string) *Error {
	if before == "" {
		e := StillApplying(runID, townID, binding, since)
		e.Code, e.cause = wire.CodePluginAbsent, nil
		return e
	}
	e := &Error{
		Code: wire.CodePluginAbsent, RunID: runID,
		Reason: fmt.Sprintf("The %s, and the command of run %s, which is before this one, waits for it.",
			noGame(townID, binding, since), before),
		Next: "Nothing was judged, and the key is free; send the same handoff again when the game is " +
			"back.",
	}
	if runID == "" {
		e.Next = "Nothing was stored; send the request again when the game is back, or cancel that " +
			"run first."
	}
	return e
}

func noGame(townID string, binding apply.Binding, since time.Time) string {
	return fmt.Sprintf("town %q has had no %s since %s", townID, binding.Spec().Game,
		since.UTC().Format(time.RFC3339))
}

// Cancelled is the error for the client of a run that was cancelled while its handoff waited, or
// while its command was pending.
func Cancelled(runID string, pending bool) *Error {
	e := &Error{Code: wire.CodeRunCancelled, RunID: runID, cause: machine.ErrRunCancelled,
		Next: "Nothing was judged, and the key is free: the same handoff may be sent again."}
	e.Reason = strings.TrimPrefix(machine.ErrRunCancelled.Error(), "machine: ") + ": run " + runID + "."
	if pending {
		e.Next = "Its command is not asked for any more, and the key is free: the same handoff may " +
			"be sent again."
	}
	return e
}

// StillApplying is ErrInProgress with the run of the command. absent is the time at which the town
// lost its game; zero if it has one.
func StillApplying(runID, townID string, binding apply.Binding, absent time.Time) *Error {
	e := &Error{Code: wire.CodeInProgress, RunID: runID, Pending: true, cause: ErrInProgress}
	if absent.IsZero() {
		e.Reason = "the handoff is accepted and its command is being applied;"
		e.Next = "send the same handoff again to get its result (run " + runID + ")"
		return e
	}
	e.RetryAfter = protocol.LongRetryDelay
	e.Reason = fmt.Sprintf("the handoff is accepted as run %s, and its command goes on waiting: "+
		"the %s;", runID, noGame(townID, binding, absent))
	e.Next = "send the same handoff again to get its result, or cancel the run"
	return e
}

// KeyInUse is ErrInProgress for a handoff that is not accepted, since another one with its key is. The
// run is the other one's, and left out.
func KeyInUse(by string) *Error {
	return &Error{Code: wire.CodeInProgress, cause: ErrInProgress,
		Reason: "the key is in use by another handoff, " + by + ", whose command is being applied; this one " +
			"was not judged.",
		Next: "Propose it under a key of its own, or send it again: it is a duplicate once the other one has " +
			"its result."}
}

// RetryNotJudged turns err into the error of a retry that was not judged: the retried run and the result
// of its key are unchanged.
func RetryNotJudged(runID string, err error) error {
	waited, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	e := *waited
	if e.Code == wire.CodeRunCancelled {
		e.Reason = "The retry, run " + e.RunID + ", was cancelled."
	}
	e.Next = "Run " + runID + " and the result of its key are unchanged: retry the run again."
	return &e
}

// CancellationFor returns the cancellation of a run whose handoff is not judged because of err. A pause or an
// absent game gives the cancellation its code; other errors give it none.
func CancellationFor(err error) machine.Cancellation {
	if waited, ok := errors.AsType[*Error](err); ok && waited.cause == nil {
		return machine.Cancellation{
			SignalID: waited.SignalID, Code: string(waited.Code), Reason: waited.Reason,
		}
	}
	return machine.Cancellation{Reason: "The handoff was not judged: " + phrase.Sentence(err)}
}
