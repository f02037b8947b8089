package service

import (
	"context"
	"errors"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// errorRow is what the service answers to the errors that matches reports.
type errorRow struct {
	matches func(error) bool
	status  int // the header Nats-Service-Error-Code
	code    wire.Code
	// retryAfterMs is the header Retry-After-Ms; 0, and no header, where another try does not help.
	retryAfterMs int
	// text is the message of the reply. Where it is empty the client gets the error's own text:
	// the client caused the error, and the text says what to change.
	text string
	// routine is set where the server has no trouble although the status is 5xx. Such a reply is
	// not logged.
	routine bool
}

// Pauses, in milliseconds, that a client is asked to make before it asks again.
const (
	retrySoon    = 50
	retryLater   = 1000
	retryApplied = 250 // a game's answer is a few ticks away
	retryPaused  = 5000
	retryAbsent  = 5000
)

// errorTable has a row for each error that a request may end with. The first row that matches
// counts; the last one matches every error. docs/contracts.md has the same codes and statuses.
var errorTable = []errorRow{
	{matches: invalid(schemas.CodeInvalidJSON), status: 400, code: wire.CodeInvalidJSON},
	{matches: invalid(schemas.CodeSchemaValidation), status: 400, code: wire.CodeSchemaValidation},
	{matches: invalid(schemas.CodePayloadTooLarge), status: 413, code: wire.CodePayloadTooLarge},
	{matches: is(errHeadersUnreadable), status: 400, code: wire.CodeHeadersUnreadable},
	{matches: is(errUnknownRevision), status: 400, code: wire.CodeUnknownRevision},
	{matches: is(errRevisionLost), status: 404, code: wire.CodeUnknownResult},
	{matches: is(access.ErrForbidden), status: 403, code: wire.CodeForbidden},
	{matches: is(access.ErrUnreadable), status: 403, code: wire.CodeForbidden},
	{matches: is(access.ErrWorldUnreadable), status: 403, code: wire.CodeForbidden},
	{matches: is(access.ErrVerbForbidden), status: 403, code: wire.CodeForbidden},
	{matches: is(access.ErrActorNotAllowed), status: 403, code: wire.CodeActorNotAllowed},
	{matches: signal(wire.CodeAlreadyPaused), status: 409, code: wire.CodeAlreadyPaused},
	{matches: signal(wire.CodeNotPaused), status: 409, code: wire.CodeNotPaused},
	{matches: signal(wire.CodeRunNotWaiting), status: 409, code: wire.CodeRunNotWaiting},
	{matches: signal(wire.CodeRunInHand), status: 409, code: wire.CodeRunInHand},
	{matches: signal(wire.CodeUnknownRun), status: 404, code: wire.CodeUnknownRun},
	{matches: signal(wire.CodeRunNotRetryable), status: 409, code: wire.CodeRunNotRetryable},
	{matches: signal(wire.CodeRunInDoubt), status: 409, code: wire.CodeRunInDoubt},
	{matches: signal(wire.CodeRunRetried), status: 409, code: wire.CodeRunRetried},
	{matches: signal(wire.CodeUnknownApproval), status: 404, code: wire.CodeUnknownApproval},
	{matches: signal(wire.CodeAlreadyDecided), status: 409, code: wire.CodeAlreadyDecided},
	{matches: signal(wire.CodeApprovalStale), status: 409, code: wire.CodeApprovalStale},
	{matches: signal(wire.CodeApprovalDiffers), status: 409, code: wire.CodeApprovalDiffers},
	{matches: signal(wire.CodeApprovalAmbiguous), status: 409, code: wire.CodeApprovalAmbiguous},
	{matches: signal(wire.CodeUnknownTown), status: 404, code: wire.CodeUnknownTown},
	{matches: is(worldengine.ErrUnknownTown), status: 404, code: wire.CodeUnknownTown},
	{matches: is(worldengine.ErrRevisionGone), status: 404, code: wire.CodeRevisionGone},
	{matches: is(commitlog.ErrTownDamaged), status: 500, code: wire.CodeTownDamaged,
		text: "the stored state of the town cannot be read, so nothing was judged or changed; " +
			"an operator has to repair the town: handoffctl fsck says where it is damaged"},
	{matches: is(worldengine.ErrUnknownResult), status: 404, code: wire.CodeUnknownResult},
	{matches: is(runs.ErrUnknownRun), status: 404, code: wire.CodeUnknownRun},
	{matches: is(runs.ErrRunDamaged), status: 500, code: wire.CodeRunDamaged,
		text: "the stored events of the run cannot be read; an operator has to repair them: " +
			"handoffctl fsck --repair makes them again from the log"},
	{matches: is(alerts.ErrUnknownAlert), status: 404, code: wire.CodeUnknownAlert,
		text: "the stream of alerts has no alert with this sequence, or not any more; " +
			"alert.list has the sequences"},
	{matches: is(town.ErrExists), status: 409, code: wire.CodeTownExists},
	{matches: as[*town.ConflictError], status: 409, code: wire.CodeSnapshotConflict},
	{matches: as[*town.RegressionError], status: 409, code: wire.CodeEpochRegression},
	{matches: as[*runevents.OwnedError], status: 403, code: wire.CodeRunOwned},
	{matches: as[*runevents.TransitionError], status: 409, code: wire.CodeInvalidTransition},
	{matches: is(runevents.ErrRunEnding), status: 503, code: wire.CodeRunEnding,
		retryAfterMs: retrySoon,
		text: "the engine is ending the run, so the events were not stored; " +
			"send the same request again when the run has ended"},
	{matches: is(commitlog.ErrRecordTooLarge), status: 413, code: wire.CodeRecordTooLarge},
	{matches: is(runs.ErrRunCancelled), status: 409, code: wire.CodeRunCancelled},
	{matches: paused(wire.CodeTownPaused), status: 503, code: wire.CodeTownPaused,
		retryAfterMs: retryPaused, routine: true},
	{matches: paused(wire.CodeWorldPaused), status: 503, code: wire.CodeWorldPaused,
		retryAfterMs: retryPaused, routine: true},
	{matches: acceptedAbsent, status: 503, code: wire.CodePluginAbsent,
		retryAfterMs: retryLater, routine: true}, // the alert PLUGIN_ABSENT says it once
	{matches: as[*waiting.AbsentError], status: 503, code: wire.CodePluginAbsent,
		retryAfterMs: retryAbsent, routine: true},
	{matches: pluginAbsent, status: 503, code: wire.CodeInProgress,
		retryAfterMs: retryLater, routine: true},
	{matches: is(worldengine.ErrInProgress), status: 503, code: wire.CodeInProgress,
		retryAfterMs: retryApplied, routine: true},
	{matches: is(worldengine.ErrOverloaded), status: 429, code: wire.CodeOverloaded,
		retryAfterMs: retrySoon,
		text: "too many requests are waiting for this town or in all, so nothing was judged; " +
			"ask again after the pause in Retry-After-Ms"},
	{matches: is(commitlog.ErrContended), status: 503, code: wire.CodeContended,
		retryAfterMs: retrySoon,
		text:         "other servers kept changing the town, so nothing was stored; ask again"},
	{matches: is(worldengine.ErrReceiptsBehind), status: 503, code: wire.CodeReceiptsBehind,
		retryAfterMs: retrySoon,
		text: "the server does not know yet whether the idempotency key was accepted before, " +
			"so nothing was judged; ask again"},
	{matches: is(runs.ErrEventsBehind), status: 503, code: wire.CodeEventsBehind,
		retryAfterMs: retryLater,
		text: "the events of the run, if there are any, are not in their stream yet; ask " +
			"again"},
	{matches: is(worldengine.ErrStopping), status: 503, code: wire.CodeStopping,
		retryAfterMs: retryLater,
		text: "this server is stopping and did not take the request; " +
			"ask again: another server answers, or this one after its restart"},
	{matches: is(commitlog.ErrStorageFull), status: 503, code: wire.CodeStorageFull,
		retryAfterMs: retryLater, routine: true, // the alert STORAGE_FAILED says it once
		text: "the disk of the server is full or refuses to be written to, so the request was " +
			"not carried out, unless it was being stored when that began; send the same bytes " +
			"again when an operator has made room"},
	{matches: as[*waiting.EndLostError], status: 503, code: wire.CodeLogUnavailable,
		retryAfterMs: retrySoon},
	{matches: is(commitlog.ErrLogUnavailable), status: 503, code: wire.CodeLogUnavailable,
		retryAfterMs: retryLater, text: logUnavailable},
	{matches: is(alerts.ErrUnavailable), status: 503, code: wire.CodeLogUnavailable,
		retryAfterMs: retryLater, text: logUnavailable},
	{matches: is(context.DeadlineExceeded), status: 503, code: wire.CodeLogUnavailable,
		retryAfterMs: retryLater, text: logUnavailable},
	{matches: is(context.Canceled), status: 503, code: wire.CodeLogUnavailable,
		retryAfterMs: retryLater, text: logUnavailable},
	{matches: func(error) bool { return true }, status: 500, code: wire.CodeInternal,
		text: "the server has a defect and could not finish the request; its log says more"},
}

const logUnavailable = "NATS did not answer in time, so the request may have been carried out " +
	"or not; send the same bytes again to learn which"

// rowOf returns the row of an error. It is the only place that maps errors to replies.
func rowOf(err error) *errorRow {
	for i := range errorTable {
		if errorTable[i].matches(err) {
			return &errorTable[i]
		}
	}
	panic("service: the last row of the table of errors does not match every error")
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func invalid(code schemas.Code) func(error) bool {
	return func(err error) bool {
		var refused *schemas.ValidationError
		return errors.As(err, &refused) && refused.Code == code
	}
}

// pluginAbsent reports whether err is of a command that waits for a plugin.
func pluginAbsent(err error) bool {
	var waits *apply.InProgressError
	return errors.As(err, &waits) && !waits.AbsentSince.IsZero()
}

// acceptedAbsent reports whether err is of a handoff whose command goes on waiting for a plugin.
func acceptedAbsent(err error) bool {
	var absent *waiting.AbsentError
	return errors.As(err, &absent) && absent.Accepted
}

func paused(code wire.Code) func(error) bool {
	return func(err error) bool {
		var refused *worldengine.PausedError
		return errors.As(err, &refused) && refused.Code() == code
	}
}

func signal(code wire.Code) func(error) bool {
	return func(err error) bool {
		var refused *worldengine.SignalError
		return errors.As(err, &refused) && refused.Code == code
	}
}
