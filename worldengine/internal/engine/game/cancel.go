package game

import (
	"cmp"
	"context"
	"errors"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
)

// cancelTimeout bounds an operator's wait until it is known whether a request has arrived.
const cancelTimeout = 3 * time.Second

// cancellation is an operator's signal that waits until it is known whether a request has arrived.
type cancellation struct {
	*machine.Signal
	until  time.Time       // when it is decided although that is not known
	caller context.Context // ends when the operator has another answer
	done   func(error)
}

// canDecide reports whether the cancellation can be decided: without force it has to be known whether a request has
// arrived, but only until its time is over.
func (c *cancellation) canDecide(now time.Time, reach apply.Reach) bool {
	return reach != apply.ReachUnknown || c.Force || !now.Before(c.until)
}

// Cancel ends the run of a handoff that waits. It ends a pending command's run if no request for the command
// can have reached a game, or if s.Force is set. A refusal is recorded, and is a *machine.RefusedError.
// The record that ends the run is in the town's history, like the record of a result
// (docs/adr/0025-cancelling-what-is-being-applied.md). Call Cancel in the town's turn. done gets the
// error, later if it is not known yet whether a request has arrived. If caller ends before it is known, the run is not
// cancelled.
func (d *Dispatcher) Cancel(ctx, caller context.Context, s *machine.Signal, done func(error)) {
	x := d.Execution(s.TownID)
	if x == nil || x.RunID != s.RunID {
		current, err := d.loadForRun(ctx, s.TownID, s.RunID)
		if err == nil && current.Pending != nil {
			err = d.Reconcile(ctx, s.TownID, current)
		}
		if err != nil {
			done(err)
			return
		}
		x = d.Execution(s.TownID)
	}
	if x != nil && x.RunID == s.RunID {
		x.cancelOrDefer(ctx, &cancellation{s, time.Now().Add(cancelTimeout), caller, done})
		return
	}
	_, err := d.commitCancel(ctx, nil, s) // there is nothing to cancel, or this writer stops
	done(err)
}

// cancelOrDefer cancels the run, or notes the cancellation until it is known whether a request has arrived.
func (x *Execution) cancelOrDefer(ctx context.Context, c *cancellation) {
	if !c.canDecide(time.Now(), x.reach) {
		x.cancels.deferred = append(x.cancels.deferred, c)
		return
	}
	answer, err := x.dispatcher.commitCancel(ctx, x, c.Signal)
	switch {
	case err != nil:
		refused := errors.As(err, new(*machine.RefusedError)) || errors.Is(err, commitlog.ErrContended)
		x.cancels.unconfirmed = x.cancels.unconfirmed || !refused && !c.Force
	case answer != nil:
		x.detach(ctx, true, *answer, nil)
	default:
		x.detach(ctx, true, machine.Answer{}, waiting.Cancelled(x.RunID, true))
	}
	c.done(err)
}

// decideDeferred decides about the deferred cancellations.
func (x *Execution) decideDeferred(ctx context.Context) {
	deferred := x.cancels.deferred
	x.cancels.deferred = nil
	for _, c := range deferred {
		switch {
		case c.caller.Err() != nil:
			c.done(c.caller.Err())
		case x.phase == ended:
			_, err := x.dispatcher.commitCancel(ctx, nil, c.Signal)
			c.done(err)
		default:
			x.cancelOrDefer(ctx, c)
		}
	}
}

// commitCancel commits that the run that s is about is cancelled. x is the run's execution, nil if there
// is none.
func (d *Dispatcher) commitCancel(
	ctx context.Context, x *Execution, s *machine.Signal,
) (answer *machine.Answer, err error) {
	err = d.stepper.Log.RetryLostRaces(ctx, func() error {
		tail, err := d.stepper.Log.Tail(ctx, s.RunID, 0)
		if err != nil {
			return err
		}
		// Read after the tail: a handoff that was judged by then is pending here, or its run is closed.
		current, err := d.loadForRun(ctx, s.TownID, s.RunID)
		if err != nil {
			return err
		}
		event, p := &machine.Cancel{Signal: s, Reach: apply.ReachUnknown}, current.Pending
		if x != nil {
			event.Reach = x.reach
			if p != nil && x.phase == unclaimed && !p.StoppedUnreached {
				event.Reach = apply.MayHaveReached
			}
		}
		if s.Force && p != nil && p.RetryOf == nil {
			// The alert is stored first: an operator has to look at the game even if this server
			// ends here. The alert stays even if a result is committed before the cancellation.
			about := alerts.About{TownID: s.TownID, RunID: s.RunID}
			err := d.config.Alerts.RaiseStored(ctx,
				alerts.CancelledByForce.Alert(about, "{actor}", s.ActorID))
			if err != nil {
				return err
			}
		}
		in := d.stepper.Input(s.TownID, nil, event)
		if in.Tail = &tail; p != nil {
			tail.Next = max(tail.Next, p.Emitted+1)
		}
		out, err := d.stepper.Step(ctx, current, in)
		if err = cmp.Or(err, s.RefusedBy(out.SignalRefusal)); err == nil && out.Answer != nil {
			answer = out.Answer
			d.alertInDoubt(alerts.About{TownID: s.TownID, HandoffID: answer.Result.HandoffID,
				RunID: s.RunID, Trace: p.Run.Trace}, answer)
		}
		return err
	})
	return answer, err
}

// outrunCancel commits a record behind a cancellation that the log has not confirmed, so that the
// cancellation loses its race if it is still on its way.
func (x *Execution) outrunCancel(ctx context.Context, current machine.Town) {
	err := x.commitEvent(ctx, current, &machine.RecordReach{StoppedUnreached: current.Pending.StoppedUnreached})
	if x.cancels.unconfirmed = err != nil; err != nil {
		x.reads.noteFailure(time.Now(), err, true)
	}
}

// loadForRun loads a town; nothing if its id is not known. A pending command of another run counts as none.
func (d *Dispatcher) loadForRun(
	ctx context.Context, townID, runID string,
) (current machine.Town, err error) {
	if townID != "" {
		current, err = d.stepper.Log.Load(ctx, townID)
	}
	if current.Pending != nil && current.Pending.Run.RunID != runID {
		current.Pending = nil
	}
	return current, err
}
