package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

var (
	// errPanicked stands for a panic. The client gets INTERNAL.
	errPanicked = errors.New("service: a request panicked")
	// errAnswerTooLarge replaces an answer that NATS would refuse. The client gets INTERNAL.
	errAnswerTooLarge = errors.New("service: the answer exceeds the largest NATS payload")
	// errServerFull is the answer to a request that gets no slot because of other worlds.
	errServerFull = errors.New("service: too many requests of all worlds of this server are waiting, " +
		"so nothing was judged; ask again after the pause in Retry-After-Ms")
	// errHeadersUnreadable is the answer to a header block that is not well formed.
	errHeadersUnreadable = errors.New("service: the headers of the request cannot be read, " +
		"so it was not looked at: " +
		`send "NATS/1.0", at most 31 lines "Name: value" and an empty line, each ended by CR LF, ` +
		"with one space behind the colon and no other around the name")
	// errUnknownRevision is the answer to a request for a revision that does not exist.
	errUnknownRevision = errors.New("service: " + wire.ResultRevisionHeader +
		" must be 0, the form of the contract, or 1; the request was not looked at")
)

// errorTable maps errors to codes; the first row that matches counts.
var errorTable = []struct {
	code   wire.Code
	causes []error
}{
	{wire.CodeHeadersUnreadable, []error{errHeadersUnreadable}},
	{wire.CodeUnknownRevision, []error{errUnknownRevision}},
	{wire.CodeForbidden, []error{access.ErrForbidden, access.ErrUnreadable,
		access.ErrWorldUnreadable, access.ErrVerbForbidden, access.ErrWorldForbidden}},
	{wire.CodeActorNotAllowed, []error{access.ErrActorNotAllowed}},
	{wire.CodeUnknownWorld, []error{ErrUnknownWorld}},
	{wire.CodeWorldExists, []error{ErrWorldExists}},
	{wire.CodeWorldInUse, []error{ErrWorldInUse}},
	{wire.CodeWorldNotServed, []error{ErrWorldNotServed}},
	{wire.CodeUnknownTown, []error{engine.ErrUnknownTown}},
	{wire.CodeRevisionGone, []error{engine.ErrRevisionGone}},
	{wire.CodeTownDamaged, []error{records.ErrTownDamaged}},
	{wire.CodeUnknownResult, []error{engine.ErrUnknownResult}},
	{wire.CodeUnknownRun, []error{runs.ErrUnknownRun}},
	{wire.CodeRunDamaged, []error{runs.ErrRunDamaged}},
	{wire.CodeUnknownAlert, []error{alerts.ErrUnknownAlert}},
	{wire.CodeTownExists, []error{town.ErrExists}},
	{wire.CodeRunEnded, []error{runlog.ErrRunEnded}},
	{wire.CodeHistoryFull, []error{engine.ErrHistoryFull}},
	{wire.CodeRunFull, []error{records.ErrRunFull}},
	{wire.CodeRunEnding, []error{runlog.ErrRunEnding}},
	{wire.CodeRecordTooLarge, []error{commitlog.ErrRecordTooLarge}},
	{wire.CodeRunCancelled, []error{machine.ErrRunCancelled}},
	{wire.CodeInProgress, []error{engine.ErrInProgress}},
	{wire.CodeOverloaded, []error{engine.ErrOverloaded}},
	{wire.CodeContended, []error{commitlog.ErrContended}},
	{wire.CodeIndexBehind, []error{engine.ErrIndexBehind}},
	{wire.CodeStopping, []error{engine.ErrStopping}},
	{wire.CodeStorageFull, []error{commitlog.ErrStorageFull}},
	{wire.CodeLogUnavailable, []error{commitlog.ErrLogUnavailable, alerts.ErrUnavailable,
		context.DeadlineExceeded, context.Canceled}},
}

// failure is an error as a client gets it.
type failure struct {
	protocol.ErrorSpec
	runID   string              // of a handoff that waited and got no result
	details []schemas.Violation // the members of the request that the error is about
}

// failureOf returns the failure of an error. If the code of the error has no text, the failure has
// the error's own text. failureOf is the only place that maps errors to replies. An error without a
// code is a defect.
func failureOf(err error) failure {
	f := failure{details: []schemas.Violation{}}
	code, ownText, pause := wire.CodeInternal, false, time.Duration(0)
	detail := func(message string, tokens ...any) {
		f.details = []schemas.Violation{{Path: schemas.Pointer(tokens...), Message: message}}
	}
	if waited, ok := errors.AsType[*engine.WaitError](err); ok {
		code, f.runID, ownText, pause = waited.Code, waited.RunID, true, waited.RetryAfter
	} else if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
		code, f.details = wire.Code(invalid.Code), invalid.Violations
	} else if signal, ok := errors.AsType[*engine.SignalError](err); ok {
		code = signal.Code
	} else if _, ok := errors.AsType[*town.ConflictError](err); ok {
		code = wire.CodeSnapshotConflict
	} else if _, ok := errors.AsType[*town.RegressionError](err); ok {
		code = wire.CodeEpochRegression
	} else if owned, ok := errors.AsType[*runlog.OwnedError](err); ok {
		code = wire.CodeRunOwned
		message := "must not be the engine's"
		if owned.Member == "stepId" {
			message = "must be there and name a step that is not the engine's, since the run is " +
				"the engine's"
		}
		detail(message, "events", owned.Index, owned.Member)
	} else if transition, ok := errors.AsType[*runlog.TransitionError](err); ok {
		code = wire.CodeInvalidTransition
		detail("must be a valid transition, but "+transition.AttemptedState+" cannot follow",
			"events", transition.Index, "eventType")
	} else if errors.Is(err, feed.ErrInvalidCursor) {
		code = wire.CodeInvalidCursor
		detail("must be a sequence that the log has reached", "after")
	} else if errors.Is(err, errServerFull) {
		code, ownText = wire.CodeOverloaded, true
	} else if errors.Is(err, errAnswerTooLarge) {
		ownText = true
	} else {
		is := func(target error) bool { return errors.Is(err, target) }
		for _, row := range errorTable {
			if slices.ContainsFunc(row.causes, is) {
				code = row.code
				break
			}
		}
	}
	f.ErrorSpec = *cmp.Or(protocol.LookupError(code), protocol.LookupError(wire.CodeInternal))
	f.RetryAfter = cmp.Or(pause, f.RetryAfter)
	if ownText || f.Text == "" {
		f.Text = phrase.Sentence(err)
	}
	return f
}

// fail answers a request with err, and releases its slot if it has one. If the server is to blame,
// fail logs the whole error.
func (w *World) fail(in *incoming, err error) {
	if errors.Is(err, engine.ErrOverloaded) { // the engine's queue has refused the request
		pause := pauseFor(in.slots.load(in.slotOwner))
		w.release(in)
		w.shed(in, queueFull, pause)
		return
	}
	w.release(in)
	f := failureOf(err)
	w.observe(in, f.Code)
	if f.Status >= 500 && !f.Routine {
		w.config.Logger.Error("a request failed", "code", f.Code, "error", err)
	}
	w.respond(in, f.reply())
}

// reply returns the error reply (docs/contracts.md, "Errors").
func (f failure) reply() *nats.Msg {
	header := nats.Header{
		wire.ErrorCodeHeader: {strconv.Itoa(f.Status)},
		wire.ErrorHeader:     {headerText(f.Text)},
	}
	if f.RetryAfter > 0 {
		header[wire.RetryAfterHeader] = []string{strconv.FormatInt(f.RetryAfter.Milliseconds(), 10)}
	}
	if f.runID != "" {
		header[wire.RunIDHeader] = []string{f.runID}
	}
	return &nats.Msg{Header: header, Data: messages.ErrorBody(string(f.Code), f.Text, f.details)}
}

// maxHeaderText bounds the sentence in a reply's header, in bytes. The body has the whole sentence.
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

// invalidRequest returns the error of a request that is refused before it is parsed.
func invalidRequest(code schemas.Code, format string, args ...any) error {
	return &schemas.ValidationError{
		Code: code, Violations: []schemas.Violation{{Message: fmt.Sprintf(format, args...)}},
	}
}
