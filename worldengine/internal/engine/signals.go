package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/engine/approvals"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
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

// signalRecorder makes signals, and records those that change no town.
type signalRecorder struct {
	stepper *stepper.Stepper
	newRun  func(planID, planVersion string) (runevents.Identity, error)
}

// newSignal returns a signal with its defaults and its run.
func (r *signalRecorder) newSignal(given Signal) (*Signal, error) {
	s := given.WithDefaults()
	var err error
	s.Run, err = r.newRun(machine.SignalPlan, machine.SignalVersion)
	return &s, err
}

// record records a signal that changes no town: refused with a code, or accepted if code is "".
func (r *signalRecorder) record(ctx context.Context, s *Signal, code wire.Code) error {
	in := r.stepper.Input(s.TownID, nil, &machine.RecordSignal{Signal: s, Code: code})
	_, err := r.stepper.Step(ctx, machine.Town{}, in)
	return err
}

// refuse records that a signal is refused. It returns the refusal as a *SignalError, or the error
// that kept the refusal from being recorded.
func (r *signalRecorder) refuse(ctx context.Context, s *Signal, refusal *approval.Refusal) error {
	return cmp.Or(r.record(ctx, s, refusal.Code), s.RefusedBy(refusal))
}

// Signal carries out an operator's signal. Each signal is a run of its own, whose events record
// whether it was accepted (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a
// town is a commit of its history, even while a command is pending.
func (e *Engine) Signal(ctx context.Context, given Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := e.recorder.newSignal(given)
	if err != nil {
		return Control{}, err
	}
	if s.Kind == machine.SignalCancel {
		return e.cancelRun(ctx, s)
	}
	out, err := e.signal(ctx, s, false)
	if err != nil {
		return Control{}, err
	}
	if s.TownID == "" {
		e.worldPause.Set(waiting.Pause{Seq: out.NextTown.Seq, By: out.NextTown.Paused})
	}
	return e.controlOf(s.TownID, out.NextTown, s.Run.RunID), nil
}

// signalled is what became of a signal.
type signalled struct {
	machine.Output
	delivery *Redelivery // of the handoff that the signal approved
}

// signal makes the step of a signal in a town, in its turn, or in the world; out has the town after
// it. With submit, the turn of an approval also begins the delivery of its handoff. The error of a
// refusal is a *SignalError.
func (e *Engine) signal(ctx context.Context, s *Signal, submit bool) (out signalled, err error) {
	if s.TownID == "" {
		out.Output, err = e.stepSignal(ctx, s)
	} else {
		out, err = e.callInTurn(ctx, s.TownID, func(turn context.Context, done doneFunc) {
			done(e.signalInTurn(turn, s, submit))
		})
	}
	return out, cmp.Or(err, s.RefusedBy(out.SignalRefusal))
}

func (e *Engine) signalInTurn(turn context.Context, s *Signal, submit bool) (out signalled, err error) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	out.Output, err = e.stepSignal(ctx, s)
	switch {
	case err != nil:
	case submit && out.DecidedApproval != nil && out.DecidedApproval.Decision.Approved:
		out.delivery = e.redeliver(turn, s.TownID, out.DecidedApproval)
	case out.Record != nil && out.Record.Subject() == machine.TownSubject:
		err = e.dispatcher.Reconcile(ctx, s.TownID, out.NextTown) // the run of a command is paused or resumed, too
	}
	return out, err
}

// stepSignal makes the step of a signal once more whenever it loses a race.
func (e *Engine) stepSignal(ctx context.Context, s *Signal) (out machine.Output, err error) {
	var drawn []runlog.DrawnID
	err = e.log.RetryLostRaces(ctx, func() error {
		t, err := e.townOrWorld(ctx, s.TownID)
		if err != nil {
			return err
		}
		in := e.stepper.Input(s.TownID, drawn, s)
		out, err = e.stepper.Step(ctx, t, in)
		drawn = in.Drawn
		return err
	})
	return out, err
}

// townOrWorld loads a town. For "" it returns a Town that has only the world's pause and its Seq.
func (e *Engine) townOrWorld(ctx context.Context, townID string) (t machine.Town, err error) {
	if townID != "" {
		return e.log.Load(ctx, townID)
	}
	t.Seq, t.Paused, err = e.log.WorldPause(ctx)
	return t, err
}

// Control returns whether a town, or with "" the world, is paused.
func (e *Engine) Control(ctx context.Context, townID string) (Control, error) {
	current, err := e.townOrWorld(ctx, townID)
	if err == nil && townID != "" && !current.State.Exists() {
		err = fmt.Errorf("%w: %q", ErrUnknownTown, townID)
	}
	if err != nil {
		return Control{}, err
	}
	return e.controlOf(townID, current, ""), nil
}

// controlOf returns the state of the pause of a town, or with "" of the world. Its substatus is
// DRAINING while the pause waits for commands that are being applied.
func (e *Engine) controlOf(townID string, current machine.Town, signalID string) Control {
	by, applying := current.Paused, e.dispatcher.Count()
	if townID != "" {
		by, applying = e.worldPause.Effective(current), 0
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
func (e *Engine) Draining(ctx context.Context, run *runevents.Snapshot) (bool, error) {
	townID := machine.ReadStarted(run).TownID
	if run.Status != runevents.RunStatusPaused || townID == "" {
		return false, nil
	}
	current, err := e.log.Load(ctx, townID)
	if err != nil || current.Pending == nil || current.Pending.Run.RunID != run.RunID {
		return false, err
	}
	return e.controlOf(townID, current, "").Substatus == messages.Draining, nil
}

// RecordRefused records that a signal was refused with a code before the engine looked at it.
func (e *Engine) RecordRefused(ctx context.Context, given Signal, code wire.Code) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := e.recorder.newSignal(given)
	if err != nil {
		return err
	}
	return e.recorder.record(ctx, s, code)
}

// cancelRun ends a run that waits for the end of a pause or behind a command, or whose own command
// no game has. It records the signal. The client of the handoff is answered in the town's next turn.
func (e *Engine) cancelRun(ctx context.Context, s *Signal) (c Control, err error) {
	tail, err := e.log.Tail(ctx, s.RunID, 0)
	switch {
	case err != nil:
		return Control{}, err
	case tail.FirstRecord != nil:
		s.TownID = tail.FirstRecord.TownID
	default:
		s.TownID, err = e.finalRecords.TownOf(ctx, s.RunID)
	}
	if err == nil {
		_, err = e.callInTurn(ctx, s.TownID, func(turn context.Context, done doneFunc) {
			e.cancelInTurn(turn, ctx, s, func(err error) { done(signalled{}, err) })
		})
	}
	if err != nil {
		return Control{}, err
	}
	c, err = e.Control(ctx, s.TownID)
	c.SignalID = s.Run.RunID
	return c, err
}

// cancelInTurn carries out a cancellation in its town's turn, and records that it was accepted, even if
// caller, its operator's context, ends meanwhile. The recording has time of its own, whatever the rest took.
func (e *Engine) cancelInTurn(turn, caller context.Context, s *Signal, done func(error)) {
	ctx, cancel := context.WithTimeout(turn, operationTimeout)
	defer cancel()
	e.dispatcher.Cancel(ctx, caller, s, func(err error) {
		if err == nil {
			e.judge.markCancelled(s.TownID, s.RunID)
			ctx, cancel := context.WithTimeout(turn, operationTimeout)
			defer cancel()
			err = e.recorder.record(ctx, s, "")
		}
		done(err)
	})
}

// doneFunc answers the operator who waits for the call of a turn.
type doneFunc func(out signalled, err error)

// callInTurn calls f in a turn of a town, before its tasks, and waits until f has called done. It does not
// call f if ctx is done by then, since its caller has got the error. If ctx ends later, f completes what
// it has begun, and only the answer is lost. A run that is not known is of the town "".
func (e *Engine) callInTurn(
	ctx context.Context, townID string, f func(turn context.Context, done doneFunc),
) (signalled, error) {
	reply := queue.NewFuture[signalled]()
	err := e.queue.RunNext(townID, func(turn context.Context) {
		if ctx.Err() == nil {
			f(turn, reply.Answer)
		}
	})
	if err != nil {
		return signalled{}, err
	}
	return reply.Wait(ctx)
}

// Retry judges the handoff of the signal's run again, in a new run. That is possible only if the
// run failed because no plugin or console could be reached. Retry waits for the result, at most for
// wait; by then the handoff may still wait, or a game may still be applying its command. The new
// run records that the signal was accepted. The error of a refused signal is a *SignalError.
func (e *Engine) Retry(
	ctx context.Context, given Signal, wait time.Duration,
) (retried messages.Retried, err error) {
	reply := queue.NewFuture[Answer]()
	d, retried, err := e.newRetry(ctx, given)
	if err == nil {
		err = e.judge.submit(d, reply)
	}
	if err != nil {
		return retried, waiting.RetryNotJudged(given.RunID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer, err := d.awaitRetry(ctx, reply)
	if errors.Is(err, ErrInProgress) {
		err = nil
	}
	retried.Result = answer.JSON
	return retried, err
}

// newRetry returns the delivery that retries the run that a signal names. It records a refusal, and returns
// it as a *SignalError.
func (e *Engine) newRetry(
	ctx context.Context, given Signal,
) (d *delivery, retried messages.Retried, err error) {
	s, err := e.recorder.newSignal(given)
	if err != nil {
		return nil, retried, err
	}
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	end, seq, err := e.finalRecords.Get(ctx, s.RunID)
	var failed machine.FailedRun
	var refusal *approval.Refusal
	if err == nil {
		failed, refusal, err = machine.NewFailedRun(s.RunID, seq, end)
	}
	if errors.Is(err, runs.ErrUnknownRun) {
		refusal, err = &approval.Refusal{Code: wire.CodeUnknownRun, Message: err.Error()}, nil
	}
	if s.TownID = failed.TownID; err == nil && refusal != nil {
		err = e.recorder.refuse(ctx, s, refusal)
	}
	if err != nil {
		return nil, retried, err
	}
	d, err = e.judge.newDelivery(failed.Handoff, failed.Trace)
	d.failedRun = &failed
	d.retryRequest = &machine.RetryRequest{RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason}
	return d, messages.Retried{TownID: s.TownID, HandoffID: failed.Handoff.HandoffID,
		RetryOf: s.RunID, RunID: d.run.RunID}, err
}

// awaitRetry returns the answer to a retry. It returns ErrInProgress while there is none yet.
func (d *delivery) awaitRetry(ctx context.Context, reply queue.Future[Answer]) (Answer, error) {
	answer, err := reply.Wait(ctx)
	var waits *WaitError
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, ErrInProgress),
		errors.As(err, &waits) && waits.Pending:
		return Answer{RunID: d.run.RunID}, ErrInProgress
	}
	return Answer{}, waiting.RetryNotJudged(d.retryRequest.RunID, err)
}

// Approvals returns the reader of the proposals that wait for a person's approval.
func (e *Engine) Approvals() *approvals.Reader { return e.approvals }

// DecideApproval stores a decision about a handoff that waits for approval in a town. The signal has the
// kind, SignalApprove or SignalDeny, the town, the handoff, the person and the reason. The decision is a
// commit of the town, so the first of two wins; the other gets a *SignalError. The returned entry
// has the decision and, if it is an approval, the handoff. With submit, an approved handoff is
// delivered as soon as the approval is stored, even if ctx has ended by then; the delivery is nil
// otherwise.
func (e *Engine) DecideApproval(
	ctx context.Context, given Signal, submit bool,
) (approval.Request, *Redelivery, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s, err := e.recorder.newSignal(given)
	if err != nil {
		return approval.Request{}, nil, err
	}
	out, err := e.signal(ctx, s, submit)
	if err != nil {
		return approval.Request{}, nil, err
	}
	return *out.DecidedApproval, out.delivery, nil
}
