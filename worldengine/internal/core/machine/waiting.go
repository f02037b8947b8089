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
var ErrRunCancelled = errors.New("machine: the run was cancelled while the handoff was waiting")

// Wait says that the handoff of a run waits for its town.
type Wait struct {
	Handoff *handoff.Handoff
	Run     runevents.Identity
	// Start is how the run begins, if it is not recorded yet.
	Start RunStart
	// By is the pause whose end the handoff waits for; nil if it waits behind a command.
	By *messages.PausedBy
	// Closing closes the run to others, since the handoff is judged next. Otherwise a closed run is opened
	// again: it was to be judged, and has to wait again.
	Closing bool
}

// CancelWaiting cancels the run of a handoff that waited and is not going to be judged.
type CancelWaiting struct {
	Run runevents.Identity
	// Handoff is required unless the tail has the run's start.
	Handoff *handoff.Handoff
	Retry   *RetryRequest // nil if the run retries no other one
	Why     Cancellation
}

func (*Wait) MaxIDs() int { return maxRunIDs }

func (e *Wait) TailRun(*Town) (runID string, emitted int64) { return e.Run.RunID, 0 }

// effect records that a run waits, once for each reason.
func (e *Wait) effect(s *step) (Output, error) {
	p, n, purpose := s.producer(e.Run), emitter{}, PurposeProgress
	n.producer = p
	switch status := s.tail.Status; {
	case s.tail.Cancelled:
		return Output{}, ErrRunCancelled
	case e.By == nil && status != "", status == runevents.RunStatusPaused: // it is recorded
		if s.tail.Closed == e.Closing {
			return Output{}, nil
		}
	case e.By == nil:
		n.emit(queued(p, e.Start, started(p, e.Handoff, e.Start.Retry)))
	default:
		start := e.Start
		start.status = status
		n.startRun(e.Handoff, start)
		n.run(runevents.RunPaused, pausedPayload{SignalID: e.By.SignalID, Reason: e.By.Reason})
		purpose = PurposeRunPause
	}
	if e.Closing {
		purpose = PurposeEndOfWait
	}
	return s.runOutput(e.Run, s.tail.NewEvents(p.Run()), purpose), n.err
}

func (*CancelWaiting) MaxIDs() int { return maxRunIDs }

func (e *CancelWaiting) TailRun(*Town) (runID string, emitted int64) { return e.Run.RunID, 0 }

func (e *CancelWaiting) effect(s *step) (Output, error) {
	tail, p := s.tail, s.producer(e.Run)
	var err error
	switch {
	case tail.Cancelled:
		return Output{}, ErrRunCancelled
	case tail.FirstRecord != nil:
		err = emitCancelled(p, tail.Status, tail.FirstRecord.Run.Events[0].Payload, e.Why)
	case e.Handoff != nil:
		err = emitCancelled(p, runevents.RunStatusPending, started(p, e.Handoff, e.Retry), e.Why)
	default:
		err = errors.New("machine: the run does not wait")
	}
	return s.runOutput(e.Run, p.Run().Events, PurposeEndOfWait), err
}
