package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/feed"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// Errors of requests that are not looked at.
var (
	// errPanicked stands for a panic, whose client gets INTERNAL.
	errPanicked = errors.New("service: a request panicked")
	// errHeadersUnreadable is the answer to a header block that cannot be decoded.
	errHeadersUnreadable = errors.New("service: the headers of the request cannot be read, " +
		"so it was not looked at: " +
		`send "NATS/1.0", at most 31 lines "Name: value" and an empty line, each ended by CR LF`)
	// errUnknownRevision is the answer to a request for a revision that does not exist.
	errUnknownRevision = errors.New("service: " + wire.ResultRevisionHeader +
		" must be 0, the form of the contract, or 1; the request was not looked at")
)

// errorTable maps the errors of other packages to codes; the first row that matches counts.
// Errors that have a code themselves need no row (ownCode), and any other error is a defect.
var errorTable = []struct {
	matches func(error) bool
	code    wire.Code
}{
	{matches: is(errHeadersUnreadable), code: wire.CodeHeadersUnreadable},
	{matches: is(errUnknownRevision), code: wire.CodeUnknownRevision},
	{matches: is(feed.ErrInvalidCursor), code: wire.CodeInvalidCursor},
	{matches: is(access.ErrForbidden, access.ErrUnreadable, access.ErrWorldUnreadable,
		access.ErrVerbForbidden), code: wire.CodeForbidden},
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
	{matches: is(worldengine.ErrInProgress), code: wire.CodeInProgress},
	{matches: is(worldengine.ErrOverloaded), code: wire.CodeOverloaded},
	{matches: is(commitlog.ErrContended), code: wire.CodeContended},
	{matches: is(worldengine.ErrIndexBehind), code: wire.CodeIndexBehind},
	{matches: is(worldengine.ErrStopping), code: wire.CodeStopping},
	{matches: is(commitlog.ErrStorageFull), code: wire.CodeStorageFull},
	{matches: is(commitlog.ErrLogUnavailable, alerts.ErrUnavailable, context.DeadlineExceeded,
		context.Canceled), code: wire.CodeLogUnavailable},
	{matches: func(error) bool { return true }, code: wire.CodeInternal},
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// specOf returns the reply to an error: the declaration of its own code, or else of the one in
// errorTable, with the error's own text if the code has none. It is the only place that maps errors
// to replies.
func specOf(err error) (spec wire.ErrorSpec) {
	if waited, ok := errors.AsType[*worldengine.WaitError](err); ok {
		spec = *waited.Code.Spec()
		spec.RetryAfter, spec.Text = cmp.Or(waited.RetryAfter, spec.RetryAfter), ""
	} else if own := ownCode(err).Spec(); own != nil {
		spec = *own
	} else {
		for _, row := range errorTable {
			if row.matches(err) {
				spec = *row.code.Spec()
				break
			}
		}
	}
	if spec.Text == "" {
		spec.Text = wire.Sentence(err)
	}
	return spec
}

// ownCode returns the code that an error has itself, or "".
func ownCode(err error) wire.Code {
	if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
		return wire.Code(invalid.Code)
	}
	if signal, ok := errors.AsType[*worldengine.SignalError](err); ok {
		return signal.Code
	}
	return ""
}

// fail answers a request with err, and releases its slot if it has one. It logs in full an error
// for which the server is to blame.
func (s *Service) fail(in *incoming, err error) {
	if errors.Is(err, worldengine.ErrOverloaded) { // the engine's queue has refused it
		pause := pauseFor(in.slots.Load(in.town))
		s.release(in)
		s.refuse(in, queueFull, pause)
		return
	}
	s.release(in)
	spec := specOf(err)
	s.observe(in, spec.Code)
	if spec.Status >= 500 && !spec.Routine {
		s.config.Logger.Error("a request failed", "code", spec.Code, "error", err)
	}
	s.respond(in, errorReply(err, spec))
}

// errorReply returns the error reply for err (docs/contracts.md, "Errors").
func errorReply(err error, spec wire.ErrorSpec) *nats.Msg {
	header := nats.Header{
		wire.ErrorCodeHeader: {strconv.Itoa(spec.Status)},
		wire.ErrorHeader:     {headerText(spec.Text)},
	}
	if spec.RetryAfter > 0 {
		header[wire.RetryAfterHeader] = []string{
			strconv.FormatInt(spec.RetryAfter.Milliseconds(), 10)}
	}
	if runID := runOf(err); runID != "" {
		header[wire.RunIDHeader] = []string{runID}
	}
	return &nats.Msg{Header: header,
		Data: messages.ErrorBody(string(spec.Code), spec.Text, detailsOf(err))}
}

// maxHeaderText bounds the sentence in a reply's header, in bytes; the body has all of it.
const maxHeaderText = 512

// headerText makes a text fit for a header: one line of printable ASCII.
func headerText(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r < unicode.MaxASCII && unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, text)
	return text[:min(len(text), maxHeaderText)]
}

// runOf returns the run of a handoff that waited and got no result; "" for any other error.
func runOf(err error) string {
	if waited, ok := errors.AsType[*worldengine.WaitError](err); ok {
		return waited.RunID
	}
	return ""
}

// detailsOf returns the members of a request that err is about, each with a message.
func detailsOf(err error) []schemas.Violation {
	if refused, ok := errors.AsType[*schemas.ValidationError](err); ok {
		return refused.Violations
	}
	if owned, ok := errors.AsType[*runevents.OwnedError](err); ok {
		message := "must not be the engine's"
		if owned.Member == "stepId" {
			message = "must be there and name a step that is not the engine's, since the run is " +
				"the engine's"
		}
		return []schemas.Violation{{
			Path: schemas.Pointer("events", owned.Index, owned.Member), Message: message,
		}}
	}
	if errors.Is(err, feed.ErrInvalidCursor) {
		return []schemas.Violation{{
			Path:    schemas.Pointer("after"),
			Message: "must be a sequence that the log has reached",
		}}
	}
	if transition, ok := errors.AsType[*runevents.TransitionError](err); ok {
		return []schemas.Violation{{
			Path: schemas.Pointer("events", transition.Index, "eventType"),
			Message: "must be a valid transition, but " + transition.AttemptedState +
				" cannot follow",
		}}
	}
	return []schemas.Violation{}
}

// refused returns the error of a request that is refused as a whole, before it is read.
func refused(code schemas.Code, format string, args ...any) error {
	return &schemas.ValidationError{
		Code: code, Violations: []schemas.Violation{{Message: fmt.Sprintf(format, args...)}},
	}
}
