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

// failure is an error as a client gets it.
type failure struct {
	protocol.ErrorSpec
	runID   string              // of a handoff that waited and got no result
	details []schemas.Violation // the members of the request that the error is about
	ownText bool                // the client gets the error's text instead of the code's
	text    string              // the client gets it instead of both; "" for none
}

// lostText is the text of LOG_UNAVAILABLE if NATS answers, but its log is not the known one.
const lostText = "the log has lost messages that this server has committed or read, so nothing is committed to it: an " +
	"operator has to put the newer log back, or to restart the server, as the alert LOG_LOST says; it is not known " +
	"whether the request was carried out before, and the same bytes may be sent again"

// failureTable is the only place that maps errors to replies; the first row that matches counts. match adds to the
// failure the parts that are of the error, and not of its code; if the row has no code, also the code.
var failureTable = []struct {
	code  wire.Code
	match func(error, *failure) bool
}{
	{"", matchType(func(e *engine.WaitError, f *failure) {
		f.Code, f.runID, f.RetryAfter, f.ownText = e.Code, e.RunID, e.RetryAfter, true
	})},
	{"", matchType(func(e *schemas.ValidationError, f *failure) { f.Code, f.details = wire.Code(e.Code), e.Violations })},
	{"", matchType(func(e *engine.SignalError, f *failure) { f.Code = e.Code })},
	{wire.CodeSnapshotConflict, matchType(func(*town.ConflictError, *failure) {})},
	{wire.CodeEpochRegression, matchType(func(*town.RegressionError, *failure) {})},
	{wire.CodeRunOwned, matchType(func(e *runlog.OwnedError, f *failure) {
		message := "must not be the engine's"
		if e.Member == "stepId" {
			message = "must be there and name a step that is not the engine's, since the run is the engine's"
		}
		f.addDetail(message, "events", e.Index, e.Member)
	})},
	{wire.CodeInvalidTransition, matchType(func(e *runlog.TransitionError, f *failure) {
		f.addDetail("must be a valid transition, but "+e.AttemptedState+" cannot follow", "events", e.Index, "eventType")
	})},
	{wire.CodeInvalidCursor, func(err error, f *failure) bool {
		matches := errors.Is(err, feed.ErrInvalidCursor)
		if matches {
			f.addDetail("must be a sequence that the log has reached", "after")
		}
		return matches
	}},
	{wire.CodeOverloaded, matchWithText(errServerFull)},
	{wire.CodeInternal, matchWithText(errAnswerTooLarge)},
	{wire.CodeHeadersUnreadable, matchAny(errHeadersUnreadable)},
	{wire.CodeUnknownRevision, matchAny(errUnknownRevision)},
	{wire.CodeForbidden, matchAny(access.ErrForbidden, access.ErrUnreadable,
		access.ErrWorldUnreadable, access.ErrVerbForbidden, access.ErrWorldForbidden)},
	{wire.CodeActorNotAllowed, matchAny(access.ErrActorNotAllowed)},
	{wire.CodeUnknownWorld, matchAny(ErrUnknownWorld)},
	{wire.CodeWorldExists, matchAny(ErrWorldExists)},
	{wire.CodeWorldInUse, matchAny(ErrWorldInUse)},
	{wire.CodeWorldNotServed, matchAny(ErrWorldNotServed)},
	{wire.CodeUnknownTown, matchAny(engine.ErrUnknownTown)},
	{wire.CodeRevisionGone, matchAny(engine.ErrRevisionGone)},
	{wire.CodeTownDamaged, matchAny(records.ErrTownDamaged)},
	{wire.CodeUnknownResult, matchAny(engine.ErrUnknownResult)},
	{wire.CodeUnknownRun, matchAny(runs.ErrUnknownRun)},
	{wire.CodeRunDamaged, matchAny(runs.ErrRunDamaged)},
	{wire.CodeUnknownAlert, matchAny(alerts.ErrUnknownAlert)},
	{wire.CodeTownExists, matchAny(town.ErrExists)},
	{wire.CodeRunEnded, matchAny(runlog.ErrRunEnded)},
	{wire.CodeHistoryFull, matchAny(engine.ErrHistoryFull)},
	{wire.CodeRunFull, matchAny(records.ErrRunFull)},
	{wire.CodeRunEnding, matchAny(runlog.ErrRunEnding)},
	{wire.CodeRecordTooLarge, matchAny(commitlog.ErrRecordTooLarge)},
	{wire.CodeRunCancelled, matchAny(machine.ErrRunCancelled)},
	{wire.CodeInProgress, matchAny(engine.ErrInProgress)},
	{wire.CodeOverloaded, matchAny(engine.ErrOverloaded)},
	{wire.CodeContended, matchAny(commitlog.ErrContended)},
	{wire.CodeIndexBehind, matchAny(engine.ErrIndexBehind)},
	{wire.CodeStopping, matchAny(engine.ErrStopping)},
	{wire.CodeStorageFull, matchAny(commitlog.ErrStorageFull)},
	{wire.CodeLogUnavailable, func(err error, f *failure) bool {
		matches := errors.Is(err, commitlog.ErrLogLost)
		if matches {
			f.text = lostText // the error's own names towns
		}
		return matches
	}},
	{wire.CodeLogUnavailable, matchAny(commitlog.ErrLogUnavailable, alerts.ErrUnavailable,
		context.DeadlineExceeded, context.Canceled)},
}

// matchAny matches an error that is one of some causes.
func matchAny(causes ...error) func(error, *failure) bool {
	return func(err error, _ *failure) bool {
		return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
	}
}

// matchWithText is matchAny for a cause whose error's text the client gets.
func matchWithText(cause error) func(error, *failure) bool {
	return func(err error, f *failure) bool {
		f.ownText = errors.Is(err, cause)
		return f.ownText
	}
}

// matchType matches an error of a type, whose parts add then adds.
func matchType[E error](add func(E, *failure)) func(error, *failure) bool {
	return func(err error, f *failure) bool {
		e, matches := errors.AsType[E](err)
		if matches {
			add(e, f)
		}
		return matches
	}
}

func (f *failure) addDetail(message string, tokens ...any) {
	f.details = append(f.details, schemas.Violation{Path: schemas.Pointer(tokens...), Message: message})
}

// failureOf returns the failure of an error, with the declaration of its code. If the code has no text, the failure
// has the error's own. An error without a row is a defect.
func failureOf(err error) (f failure) {
	f.Code = wire.CodeInternal
	for _, row := range failureTable {
		if row.match(err, &f) {
			f.Code = cmp.Or(row.code, f.Code)
			break
		}
	}
	after := f.RetryAfter
	f.ErrorSpec = *cmp.Or(protocol.LookupError(f.Code), protocol.LookupError(wire.CodeInternal))
	f.RetryAfter = cmp.Or(after, f.RetryAfter)
	if f.ownText || f.Text == "" {
		f.Text = phrase.Sentence(err)
	}
	f.Text = cmp.Or(f.text, f.Text)
	return f
}

// fail answers a request with err, and releases its slot if it has one. If the server is to blame,
// fail logs the whole error.
func (a *addressee) fail(in *incoming, err error) {
	if errors.Is(err, engine.ErrOverloaded) { // the engine's queue has refused the request
		afterMs := retryAfter(in.slots.load(in.slotOwner))
		a.release(in)
		a.shed(in, queueFull, afterMs)
		return
	}
	a.release(in)
	f := failureOf(err)
	a.countAnswer(in, f.Code)
	if f.Status >= 500 && !f.Routine {
		a.logger.Error("a request failed", "code", f.Code, "error", err)
	}
	a.send(in, f.reply())
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
