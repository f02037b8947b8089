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
func (o *Signals) Handle(ctx context.Context, given Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := o.signalRecorder.newSignal(given)
	if err != nil {
		return Control{}, err
	}
	if s.Kind == machine.SignalCancel {
		return o.cancelRun(ctx, s)
	}
	out, err := o.perform(ctx, s, false)
	if err != nil {
		return Control{}, err
	}
	if s.TownID == "" {
		o.worldPause.Set(waiting.Pause{Seq: out.NextTown.Seq, By: out.NextTown.Paused})
	}
	return o.controlOf(s.TownID, out.NextTown, s.Run.RunID), nil
}

// signalled is what became of a signal.
type signalled struct {
	machine.Output
	delivery *Redelivery // of the handoff that the signal approved
}

// perform makes the step of a signal in a town, in its turn, or in the world; out has the town after
// it. With submit, the turn of an approval also begins the delivery of its handoff. The error of a
// refusal is a *SignalError.
func (o *Signals) perform(ctx context.Context, s *Signal, submit bool) (out signalled, err error) {
	if s.TownID == "" {
		out.Output, err = o.step(ctx, s)
	} else {
		out, err = o.callInTurn(ctx, s.TownID, func(turn context.Context, done doneFunc) {
			done(o.performInTurn(turn, s, submit))
		})
	}
	return out, cmp.Or(err, s.RefusedBy(out.SignalRefusal))
}

func (o *Signals) performInTurn(turn context.Context, s *Signal, submit bool) (out signalled, err error) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	out.Output, err = o.step(ctx, s)
	switch {
	case err != nil:
	case submit && out.DecidedApproval != nil && out.DecidedApproval.Decision.Approved:
		out.delivery = o.redeliver(turn, s.TownID, out.DecidedApproval)
	case out.Record != nil && out.Record.Subject() == machine.TownSubject:
		err = o.dispatcher.Reconcile(ctx, s.TownID, out.NextTown) // the run of a command is paused or resumed, too
	}
	return out, err
}

// step makes the step of a signal once more whenever it loses a race.
func (o *Signals) step(ctx context.Context, s *Signal) (out machine.Output, err error) {
	var drawn []runlog.DrawnID
	err = o.log.RetryLostRaces(ctx, func() error {
		t, err := o.townOrWorld(ctx, s.TownID)
		if err != nil {
			return err
		}
		in := o.stepper.Input(s.TownID, drawn, s)
		out, err = o.stepper.Step(ctx, t, in)
		drawn = in.Drawn
		return err
	})
	return out, err
}

// townOrWorld loads a town. For "" it returns a Town that has only the world's pause and its Seq.
func (o *Signals) townOrWorld(ctx context.Context, townID string) (t machine.Town, err error) {
	if townID != "" {
		return o.log.Load(ctx, townID)
	}
	t.Seq, t.Paused, err = o.log.WorldPause(ctx)
	return t, err
}

// Control returns whether a town, or with "" the world, is paused.
func (o *Signals) Control(ctx context.Context, townID string) (Control, error) {
	current, err := o.townOrWorld(ctx, townID)
	if err == nil && townID != "" && !current.State.Exists() {
		err = fmt.Errorf("%w: %q", ErrUnknownTown, townID)
	}
	if err != nil {
		return Control{}, err
	}
	return o.controlOf(townID, current, ""), nil
}

// controlOf returns the state of the pause of a town, or with "" of the world. Its substatus is
// DRAINING while the pause waits for commands that are being applied.
func (o *Signals) controlOf(townID string, current machine.Town, signalID string) Control {
	by, applying := current.Paused, o.dispatcher.Count()
	if townID != "" {
		by, applying = o.worldPause.Effective(current), 0
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
func (o *Signals) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	townID := machine.ReadStarted(run).TownID
	if run.Status != runevents.RunStatusPaused || townID == "" {
		return false, nil
	}
	current, err := o.log.Load(ctx, townID)
	if err != nil || current.Pending == nil || current.Pending.Run.RunID != run.RunID {
		return false, err
	}
	return o.controlOf(townID, current, "").Substatus == messages.Draining, nil
}

// RecordRefused records that a signal was refused with a code before the engine looked at it.
func (o *Signals) RecordRefused(ctx context.Context, given Signal, code wire.Code) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := o.signalRecorder.newSignal(given)
	if err != nil {
		return err
	}
	return o.signalRecorder.record(ctx, s, code)
}

// cancelRun ends a run that waits for the end of a pause or behind a command, or whose own command
// no game has. It records the signal. The client of the handoff is answered in the town's next turn.
func (o *Signals) cancelRun(ctx context.Context, s *Signal) (c Control, err error) {
	tail, err := o.log.Tail(ctx, s.RunID, 0)
	switch {
	case err != nil:
		return Control{}, err
	case tail.FirstRecord != nil:
		s.TownID = tail.FirstRecord.TownID
	default:
		s.TownID, err = o.finalRecords.TownOf(ctx, s.RunID)
	}
	if err == nil {
		_, err = o.callInTurn(ctx, s.TownID, func(turn context.Context, done doneFunc) {
			o.cancelInTurn(turn, ctx, s, func(err error) { done(signalled{}, err) })
		})
	}
	if err != nil {
		return Control{}, err
	}
	c, err = o.Control(ctx, s.TownID)
	c.SignalID = s.Run.RunID
	return c, err
}

// cancelInTurn carries out a cancellation in its town's turn, and records that it was accepted, even if
// caller, its operator's context, ends meanwhile. The recording has time of its own, whatever the rest took.
func (o *Signals) cancelInTurn(turn, caller context.Context, s *Signal, done func(error)) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	o.dispatcher.Cancel(ctx, caller, s, func(err error) {
		if err == nil {
			o.handoffs.markCancelled(s.TownID, s.RunID)
			ctx, cancel := context.WithTimeout(turn, operationTimeout)
			defer cancel()
			err = o.signalRecorder.record(ctx, s, "")
		}
		done(err)
	})
}

// doneFunc answers the operator who waits for the call of a turn.
type doneFunc func(out signalled, err error)

// callInTurn calls f in a turn of a town, before its tasks, and waits until f has called done. It does not
// call f if ctx is done by then, since its caller has got the error. If ctx ends later, f completes what
// it has begun, and only the answer is lost. A run that is not known is of the town "".
func (o *Signals) callInTurn(
	ctx context.Context, townID string, f func(turn context.Context, done doneFunc),
) (signalled, error) {
	reply := queue.NewFuture[signalled]()
	err := o.queue.RunNext(townID, func(turn context.Context) {
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
func (o *Signals) Decide(
	ctx context.Context, given Signal, submit bool,
) (approval.Request, *Redelivery, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := o.signalRecorder.newSignal(given)
	if err != nil {
		return approval.Request{}, nil, err
	}
	out, err := o.perform(ctx, s, submit)
	if err != nil {
		return approval.Request{}, nil, err
	}
	return *out.DecidedApproval, out.delivery, nil
}
