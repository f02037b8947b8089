package machine

import (
	"errors"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
)

// While a handoff waits for its town, its run has events on the run's own subject. Behind a command
// that a game applies, the event is RunQueued. In a pause, the events are RunStarted and RunPaused.

// ErrRunCancelled: the run was cancelled by an operator, or because its server seemed dead. The key
// is free.
var ErrRunCancelled = errors.New("worldengine: the run was cancelled while the handoff was waiting")

// Wait says that the handoff of a run waits for its town.
type Wait struct {
	Handoff *handoff.Handoff
	Run     runevents.Identity
	// Begin is how the run begins, if it is not recorded yet.
	Begin Begin
	// By is the pause whose end the handoff waits for; nil if it waits behind a command.
	By *messages.PausedBy
}

// Close closes a run to others before its handoff is judged, so that the run's end follows all
// events that they have appended. If the Wait is not recorded yet, the same record has it.
type Close struct{ Wait }

// Open reopens a closed run. If the run's command is pending, Emitted is the number of the run's
// events in the record that accepted its handoff.
type Open struct {
	Run     runevents.Identity
	Emitted int64
}

// Abandon cancels the run of a handoff that waited and is not going to be judged.
type Abandon struct {
	Run runevents.Identity
	// Handoff is required unless the tail has the run's start.
	Handoff *handoff.Handoff
	Retry   *Retry // nil if the run retries no other one
	Why     Cancellation
}

// effect records that a run waits, once.
func (e *Wait) effect(s *step) (Output, error) {
	tail, p := s.in.Tail, s.producer(e.Run)
	var err error
	switch {
	case tail.Cancelled:
		return Output{}, ErrRunCancelled
	case e.By == nil && tail.Status != "", tail.Status == runevents.RunStatusPaused:
		return Output{}, nil
	case e.By == nil:
		err = p.Emit(queued(p, e.Begin, started(p, e.Handoff, e.Begin.Retry)))
	default:
		n := emitter{producer: p}
		n.startRun(e.Handoff, e.Begin)
		n.run(runevents.RunPaused, pausedPayload{SignalID: e.By.SignalID, Reason: e.By.Reason})
		err = n.err
	}
	return s.runOutput(e.Run, tail.NewEvents(p.Run()), tail.Closed), err
}

func (e *Close) effect(s *step) (Output, error) {
	out, err := e.Wait.effect(s)
	switch {
	case err != nil || s.in.Tail.Closed:
		return Output{}, err
	case out.Record == nil:
		return s.runOutput(e.Run, nil, true), nil
	}
	out.Record.Closing = true
	return out, nil
}

func (e *Open) effect(s *step) (Output, error) {
	if !s.in.Tail.Closed {
		return Output{}, nil
	}
	return s.runOutput(e.Run, nil, false), nil
}

func (e *Abandon) effect(s *step) (Output, error) {
	tail, p := s.in.Tail, s.producer(e.Run)
	var err error
	switch {
	case tail.Cancelled:
		return Output{}, ErrRunCancelled
	case tail.Waiting != nil:
		err = emitCancelled(p, tail.Status, tail.Waiting.Run.Events[0].Payload, e.Why)
	case e.Handoff != nil:
		err = emitCancelled(p, runevents.RunStatusPending, started(p, e.Handoff, e.Retry), e.Why)
	default:
		err = errors.New("machine: the run does not wait")
	}
	return s.runOutput(e.Run, p.Run().Events, true), err
}
