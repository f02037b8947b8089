package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// errorTable maps the errors of other packages to codes; the first row that matches counts.
// Errors that have a code themselves need no row (ownCode), and any other error is a defect.
var errorTable = []struct {
	matches    func(error) bool
	code       wire.Code
	retryAfter time.Duration // instead of the code's own
	ownText    bool          // the reply has the error's text, although the code has one
}{
	{matches: is(errHeadersUnreadable), code: wire.CodeHeadersUnreadable},
	{matches: is(errUnknownRevision), code: wire.CodeUnknownRevision},
	{matches: is(feed.ErrInvalidCursor), code: wire.CodeInvalidCursor},
	{matches: is(access.ErrForbidden), code: wire.CodeForbidden},
	{matches: is(access.ErrUnreadable), code: wire.CodeForbidden},
	{matches: is(access.ErrWorldUnreadable), code: wire.CodeForbidden},
	{matches: is(access.ErrVerbForbidden), code: wire.CodeForbidden},
	{matches: is(access.ErrActorNotAllowed), code: wire.CodeActorNotAllowed},
	{matches: is(worldengine.ErrUnknownTown), code: wire.CodeUnknownTown},
	{matches: is(worldengine.ErrRevisionGone), code: wire.CodeRevisionGone},
	{matches: is(commitlog.ErrTownDamaged), code: wire.CodeTownDamaged},
	{matches: is(worldengine.ErrUnknownResult), code: wire.CodeUnknownResult},
	{matches: is(runs.ErrUnknownRun), code: wire.CodeUnknownRun},
	{matches: is(runs.ErrRunDamaged), code: wire.CodeRunDamaged},
	{matches: is(alerts.ErrUnknownAlert), code: wire.CodeUnknownAlert},
	{matches: is(town.ErrExists), code: wire.CodeTownExists},
	{matches: as[*town.ConflictError], code: wire.CodeSnapshotConflict},
	{matches: as[*town.RegressionError], code: wire.CodeEpochRegression},
	{matches: as[*runevents.OwnedError], code: wire.CodeRunOwned},
	{matches: as[*runevents.TransitionError], code: wire.CodeInvalidTransition},
	{matches: is(runevents.ErrRunEnded), code: wire.CodeRunEnded},
	{matches: is(runevents.ErrRunEnding), code: wire.CodeRunEnding},
	{matches: is(commitlog.ErrRecordTooLarge), code: wire.CodeRecordTooLarge},
	{matches: is(machine.ErrRunCancelled), code: wire.CodeRunCancelled},
	{matches: acceptedAbsent, code: wire.CodePluginAbsent, retryAfter: wire.RetryLater},
	{matches: as[*waiting.AbsentError], code: wire.CodePluginAbsent},
	{matches: pluginAbsent, code: wire.CodeInProgress, retryAfter: wire.RetryLater},
	{matches: is(worldengine.ErrInProgress), code: wire.CodeInProgress},
	{matches: is(worldengine.ErrOverloaded), code: wire.CodeOverloaded},
	{matches: is(commitlog.ErrContended), code: wire.CodeContended},
	{matches: is(worldengine.ErrIndexBehind), code: wire.CodeIndexBehind},
	{matches: is(worldengine.ErrStopping), code: wire.CodeStopping},
	{matches: is(commitlog.ErrStorageFull), code: wire.CodeStorageFull},
	{matches: as[*waiting.EndLostError], code: wire.CodeLogUnavailable,
		retryAfter: wire.RetrySoon, ownText: true},
	{matches: is(commitlog.ErrLogUnavailable), code: wire.CodeLogUnavailable},
	{matches: is(alerts.ErrUnavailable), code: wire.CodeLogUnavailable},
	{matches: is(context.DeadlineExceeded), code: wire.CodeLogUnavailable},
	{matches: is(context.Canceled), code: wire.CodeLogUnavailable},
}

// specOf returns the reply to an error: the declaration of its code, with the error's own text if
// the code has none. It is the only place that maps errors to replies.
func specOf(err error) wire.ErrorSpec {
	spec := wire.ErrorSpec{}
	if own := ownCode(err).Spec(); own != nil {
		spec = *own
	} else {
		spec = mapped(err)
	}
	if spec.Text == "" {
		spec.Text = wire.Sentence(err)
	}
	return spec
}

// mapped returns the declaration of the code to which errorTable maps err.
func mapped(err error) wire.ErrorSpec {
	for _, row := range errorTable {
		if !row.matches(err) {
			continue
		}
		spec := *row.code.Spec()
		spec.RetryAfter = cmp.Or(row.retryAfter, spec.RetryAfter)
		if row.ownText {
			spec.Text = ""
		}
		return spec
	}
	return *wire.CodeInternal.Spec()
}

// ownCode returns the code that an error has itself, or "".
func ownCode(err error) wire.Code {
	var invalid *schemas.ValidationError
	var signal *worldengine.SignalError
	var paused *worldengine.PausedError
	switch {
	case errors.As(err, &invalid):
		return wire.Code(invalid.Code)
	case errors.As(err, &signal):
		return signal.Code
	case errors.As(err, &paused):
		return paused.Code()
	}
	return ""
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
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
