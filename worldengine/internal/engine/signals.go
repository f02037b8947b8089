package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Signal is an operator's signal.
type Signal = machine.Signal

// SignalError refuses a signal. The refusal is recorded.
type SignalError = machine.RefusedError

// Control reports whether a town, or the world, is paused.
type Control = messages.Control

// Signals carries out operators' signals: pauses and resumptions, cancellations, retries, and decisions about
// approvals. A signal about a town has a turn of the town before its tasks, so that it need not wait for them. The
// stepper decides and commits; Handoffs delivers those that are retried or approved. Signals is safe for
// concurrent use.
type Signals struct {
	log            *records.Log
	finalRecords   *runs.FinalRecords
	receipts       *Receipts
	queue          *queue.Queue
	stepper        *stepper.Stepper
	dispatcher     *game.Dispatcher
	worldPause     *waiting.WorldPause
	handoffs       *Handoffs
	signalRecorder *signalRecorder
}

// Handle carries out an operator's signal. Each signal is a run of its own, whose events record
// whether it was accepted (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a
// town is a commit of its history, even while a command is pending.
func (s *Signals) Handle(ctx context.Context, request Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	signal, err := s.signalRecorder.newSignal(request)
	if err != nil {
		return Control{}, err
	}
	if signal.Kind == machine.SignalCancel {
		return s.cancelRun(ctx, signal)
	}
	out, err := s.perform(ctx, signal, false)
	if err != nil {
		return Control{}, err
	}
	if signal.TownID == "" {
		s.worldPause.Set(waiting.Pause{Seq: out.NextTown.Seq, By: out.NextTown.Paused})
	}
	return s.controlOf(signal.TownID, out.NextTown, signal.Run.RunID), nil
}

// signalled is what became of a signal.
type signalled struct {
	machine.Output
	delivery *Redelivery // of the handoff that the signal approved
}

// perform makes the step of a signal in a town, in its turn, or in the world; out has the town after
// it. With submit, the turn of an approval also begins the delivery of its handoff. The error of a
// refusal is a *SignalError.
func (s *Signals) perform(ctx context.Context, signal *Signal, submit bool) (out signalled, err error) {
	if signal.TownID == "" {
		out.Output, err = s.step(ctx, signal)
	} else {
		out, err = s.callInTurn(ctx, signal.TownID, func(turn context.Context, done doneFunc) {
			done(s.performInTurn(turn, signal, submit))
		})
	}
	return out, cmp.Or(err, signal.RefusedBy(out.SignalRefusal))
}

func (s *Signals) performInTurn(turn context.Context, signal *Signal, submit bool) (out signalled, err error) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	out.Output, err = s.step(ctx, signal)
	switch {
	case err != nil:
	case submit && out.DecidedApproval != nil && out.DecidedApproval.Decision.Approved:
		out.delivery = s.redeliver(turn, signal.TownID, out.DecidedApproval)
	case out.Record != nil && out.Record.Subject() == machine.TownSubject:
		err = s.dispatcher.Reconcile(ctx, signal.TownID, out.NextTown) // the run of a command is paused or resumed, too
	}
	return out, err
}

// step makes the step of a signal once more whenever it loses a race.
func (s *Signals) step(ctx context.Context, signal *Signal) (out machine.Output, err error) {
	var drawn []runlog.DrawnID
	err = s.log.RetryLostRaces(ctx, func() error {
		t, err := s.townOrWorld(ctx, signal.TownID)
		if err != nil {
			return err
		}
		in := s.stepper.Input(signal.TownID, drawn, signal)
		out, err = s.stepper.Step(ctx, t, in)
		drawn = in.Drawn
		return err
	})
	return out, err
}

// townOrWorld loads a town. For "" it returns a Town that has only the world's pause and its Seq.
func (s *Signals) townOrWorld(ctx context.Context, townID string) (t machine.Town, err error) {
	if townID != "" {
		return s.log.Load(ctx, townID)
	}
	t.Seq, t.Paused, err = s.log.WorldPause(ctx)
	return t, err
}

// Control returns whether a town, or with "" the world, is paused.
func (s *Signals) Control(ctx context.Context, townID string) (Control, error) {
	current, err := s.townOrWorld(ctx, townID)
	if err == nil && townID != "" && !current.State.Exists() {
		err = fmt.Errorf("%w: %q", ErrUnknownTown, townID)
	}
	if err != nil {
		return Control{}, err
	}
	return s.controlOf(townID, current, ""), nil
}

// controlOf returns the state of the pause of a town, or with "" of the world. Its substatus is
// DRAINING while the pause waits for commands that are being applied.
func (s *Signals) controlOf(townID string, current machine.Town, signalID string) Control {
	by, applying := current.Paused, s.dispatcher.Count()
	if townID != "" {
		by, applying = s.worldPause.Effective(current), 0
		if current.Pending != nil {
			applying = 1
		}
	}
	c := Control{
		TownID: townID, Status: messages.Running, Applying: applying, PausedBy: by,
		SignalID: signalID,
	}
	if by != nil {
		c.Status, c.Message = messages.Paused, "Paused."
	}
	if by != nil && applying > 0 && by.Draining(time.Now()) {
		c.Substatus = messages.Draining
		c.Message = fmt.Sprintf("Paused. Commands still being applied: %d.", applying)
	}
	return c
}

// Draining reports whether a run's pause still waits for the run's command, which is being applied.
func (s *Signals) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	townID := machine.ReadStarted(run).TownID
	if run.Status != runevents.RunStatusPaused || townID == "" {
		return false, nil
	}
	current, err := s.log.Load(ctx, townID)
	if err != nil || current.Pending == nil || current.Pending.Run.RunID != run.RunID {
		return false, err
	}
	return s.controlOf(townID, current, "").Substatus == messages.Draining, nil
}

// RecordRefused records that a signal was refused with a code before the engine looked at it.
func (s *Signals) RecordRefused(ctx context.Context, request Signal, code wire.Code) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	signal, err := s.signalRecorder.newSignal(request)
	if err != nil {
		return err
	}
	return s.signalRecorder.record(ctx, signal, code)
}

// cancelRun ends a run that waits for the end of a pause or behind a command, or whose own command
// no game has. It records the signal. The client of the handoff is answered in the town's next turn.
func (s *Signals) cancelRun(ctx context.Context, signal *Signal) (c Control, err error) {
	tail, err := s.log.Tail(ctx, signal.RunID, 0)
	switch {
	case err != nil:
		return Control{}, err
	case tail.FirstRecord != nil:
		signal.TownID = tail.FirstRecord.TownID
	default:
		signal.TownID, err = s.finalRecords.TownOf(ctx, signal.RunID)
	}
	if err == nil {
		_, err = s.callInTurn(ctx, signal.TownID, func(turn context.Context, done doneFunc) {
			s.cancelInTurn(turn, ctx, signal, func(err error) { done(signalled{}, err) })
		})
	}
	if err != nil {
		return Control{}, err
	}
	c, err = s.Control(ctx, signal.TownID)
	c.SignalID = signal.Run.RunID
	return c, err
}

// cancelInTurn carries out a cancellation in its town's turn, and records that it was accepted, even if
// caller, its operator's context, ends meanwhile. The recording has time of its own, whatever the rest took.
func (s *Signals) cancelInTurn(turn, caller context.Context, signal *Signal, done func(error)) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	s.dispatcher.Cancel(ctx, caller, signal, func(err error) {
		if err == nil {
			s.handoffs.markCancelled(signal.TownID, signal.RunID)
			ctx, cancel := context.WithTimeout(turn, operationTimeout)
			defer cancel()
			err = s.signalRecorder.record(ctx, signal, "")
		}
		done(err)
	})
}

// doneFunc answers the operator who waits for the call of a turn.
type doneFunc func(out signalled, err error)

// callInTurn calls f in a turn of a town, before its tasks, and waits until f has called done. It does not
// call f if ctx is done by then, since its caller has got the error. If ctx ends later, f completes what
// it has begun, and only the answer is lost. A run that is not known is of the town "".
func (s *Signals) callInTurn(
	ctx context.Context, townID string, f func(turn context.Context, done doneFunc),
) (signalled, error) {
	reply := queue.NewFuture[signalled]()
	err := s.queue.RunNext(townID, func(turn context.Context) {
		if ctx.Err() == nil {
			f(turn, reply.Answer)
		}
	})
	if err != nil {
		return signalled{}, err
	}
	return reply.Wait(ctx)
}

// Decide stores a decision about a handoff that waits for approval in a town. The signal has the
// kind, SignalApprove or SignalDeny, the town, the handoff, the person and the reason. The decision is a
// commit of the town, so the first of two wins; the other gets a *SignalError. The returned entry
// has the decision and, if it is an approval, the handoff. With submit, an approved handoff is
// delivered as soon as the approval is stored, even if ctx has ended by then; the delivery is nil
// otherwise.
func (s *Signals) Decide(
	ctx context.Context, request Signal, submit bool,
) (approval.Request, *Redelivery, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	signal, err := s.signalRecorder.newSignal(request)
	if err != nil {
		return approval.Request{}, nil, err
	}
	out, err := s.perform(ctx, signal, submit)
	if err != nil {
		return approval.Request{}, nil, err
	}
	return *out.DecidedApproval, out.delivery, nil
}
