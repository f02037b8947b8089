// Package machine decides about a town, and makes the run events of its decisions (RunEvents v2,
// ExecutionSemantics v2). Step is pure: it has no clock, no randomness, no I/O and no goroutine, so
// the same town and the same input give the same record, byte for byte. Time and ids come with the
// input; the engine commits the record.
//
//	Town, Input ── Step ──> Record, the next town, the answer
package machine

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
)

// Output is the effect of an input. Its records are stored in the order RunRecordBefore, Record, RunRecordAfter;
// nil for none. Each one but RunRecordAfter MUST be stored before the next one is, and before the rest of the
// output is valid.
type Output struct {
	// RunRecordBefore goes to the run's own subject. It closes the run to others if Record ends the run or may end it:
	// no event of others follows the end. Or it stores earlier events, before the events of Record.
	RunRecordBefore *Record
	// Record is the decision.
	Record *Record
	// Unguarded says that Record is valid whatever happens to the town meanwhile.
	Unguarded bool
	// RunRecordAfter, on the run's own subject, lets others append to the run again. A run that stays closed loses
	// nothing, so the input has its effect even if RunRecordAfter cannot be stored.
	RunRecordAfter *Record
	// NextTown is the town after a Record on its subject.
	NextTown Town
	// Answer is the answer to a handoff; nil if a game is to apply its command.
	Answer *Answer
	// DecidedApproval is the proposal that was decided about, with the decision.
	DecidedApproval *approval.Request
	// SignalRefusal is the reason why a signal is refused.
	SignalRefusal *approval.SignalRefusal
}

// Answer is the answer to a handoff.
type Answer struct {
	// RunID is the run that judged this delivery.
	RunID string
	// Result is the decision and JSON its bytes on the wire.
	Result *handoff.Result
	JSON   []byte
	// Embodiment is how a game embodied the command; nil if unknown.
	Embodiment jsontext.Value
	// Failed is the failure of the last attempt by a game; nil if the rules decided, or the game
	// applied the command.
	Failed *apply.Failure
	// First is the receipt of the first result, if Result is a duplicate; else nil.
	First *dedupe.Receipt
}

// Step returns the effect of an input on a town. A put, a patch or a removal is refused with an
// error of town.State.CheckReplace, a *schemas.ValidationError or town.ErrUnknown. ErrBusy refuses an
// input for now, ErrRunCancelled for good. Any other error is a defect.
func Step(t Town, in *Input, settings *Settings) (Output, error) {
	s := &step{Settings: settings, town: t, in: in, ids: in.IDs, tail: in.Tail}
	out, err := in.Event.effect(s)
	if s.lacksIDs && len(in.IDs) >= in.Event.MaxIDs() {
		err = fmt.Errorf("machine: the step of a %T draws more ids than its MaxIDs, %d: %w", in.Event, len(in.IDs), err)
	}
	return out, err
}

// step is one call of Step.
type step struct {
	*Settings
	town Town
	in   *Input
	ids  []string // not used yet
	// lacksIDs says that the step has drawn more ids than the input has.
	lacksIDs bool
	tail     *RunTail // the input's, with the records of the step on the run's own subject; nil without one
}

// producer returns a producer of the events of a run, at the time of the input.
func (s *step) producer(run runevents.Identity) *runlog.Producer {
	p := runlog.NewProducer(run, runlog.Source{
		Now: func() time.Time { return s.in.At }, NewID: s.newID,
	})
	p.UseIDs(s.in.Drawn)
	return p
}

// newID returns the next unused id. After the last one it returns "", which producers refuse.
func (s *step) newID() string {
	if len(s.ids) == 0 {
		s.lacksIDs = true
		return ""
	}
	id := s.ids[0]
	s.ids = s.ids[1:]
	return id
}

// ErrBusy: the town is paused, or a command is being applied to it. The input has to wait.
var ErrBusy = errors.New("machine: the town is paused, or a command is being applied to it")
