package pending

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/inhand"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// A run whose command is pending ends by a record of its town, as by a result
// (docs/adr/0025-cancelling-what-is-being-applied.md).

// An operator waits for at most cancelWait until it is known whether the request that is out has
// arrived; cancelPoll is the pause between two looks.
const (
	cancelWait = 3 * time.Second
	cancelPoll = 50 * time.Millisecond
)

// Cancel ends a run whose command is pending if no request for it can have reached a game, or with
// force at once. signalID is the run of the signal. A refusal is recorded.
func (w *Worker) Cancel(ctx context.Context, s *signals.Signal, signalID string) error {
	why := lifecycle.Cancellation{SignalID: signalID, Reason: s.Reason}
	return w.config.Log.Retry(ctx, func() error {
		current, err := w.load(ctx, s.TownID, s.RunID)
		if err != nil {
			return err
		}
		if current.Pending == nil {
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunNotWaiting,
				"there is nothing to cancel: no run with this id waits, and none has a command that is "+
					"being applied; it has ended, or there is no such run")
		}
		if s.Force {
			why.Code = lifecycle.CancelledByForce
			return w.cancelByForce(ctx, s, current, why)
		}
		a, own := w.applications.Of(s.TownID, s.RunID)
		if !own || !a.own || current.Pending.Reached {
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
		}
		a.gate.Close()
		switch w.arrival(ctx, a) {
		case apply.NotArrived:
		case apply.MayArrive:
			a.gate.Open()
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, notKnown)
		case apply.MayHaveArrived:
			a.gate.Open()
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
		}
		err = w.commitCancelled(ctx, s.TownID, current, why)
		switch {
		case errors.Is(err, commitlog.ErrLostRace):
			a.gate.Open()
		case err != nil:
			a.unsettled.Add(1)
		}
		return err
	})
}

// arrival returns whether a request for the command of a, whose gate is closed, may have arrived,
// once that is known or has taken cancelWait.
func (w *Worker) arrival(ctx context.Context, a *application) apply.Arrival {
	for until := time.Now().Add(cancelWait); ; {
		arrival := a.gate.Arrival()
		if arrival != apply.MayArrive || !time.Now().Before(until) ||
			backoff.Sleep(ctx, cancelPoll) != nil {
			return arrival
		}
	}
}

// settle opens the gate of a again after cancellations of which the log did not say whether they are
// stored. The commit makes that known: a cancellation that comes later loses its race.
func (w *Worker) settle(
	ctx context.Context, a *application, current commitlog.Entry, unsettled int64,
) {
	if w.commitPendingAs(ctx, a.town, current, current.Pending) != nil {
		_ = backoff.Sleep(ctx, pollPause)
		return
	}
	a.unsettled.Add(-unsettled)
	for range unsettled {
		a.gate.Open()
	}
}

// cancelByForce ends the run of a pending command, whether or not a game has it. The alert is
// stored before: an operator has to look at the game, also if this server ends here. It stays if a
// result comes first, and says so.
func (w *Worker) cancelByForce(
	ctx context.Context, s *signals.Signal, current commitlog.Entry, why lifecycle.Cancellation,
) error {
	if current.Pending.RetryOf != nil {
		return w.failByForce(ctx, s, current)
	}
	about := alerts.About{TownID: s.TownID, RunID: s.RunID}
	alert := w.config.Environment.CancelledByForce(about, s.ActorID)
	if err := w.config.RaiseStored(ctx, alert); err != nil {
		return err
	}
	return w.commitCancelled(ctx, s.TownID, current, why)
}

// failByForce ends the run of a pending retry by the result that it is not known whether its
// command was applied. Cancelled, its key would keep the result of the run that it tries again,
// which says that nothing was applied: that run could be tried once more, and its command be
// applied twice.
func (w *Worker) failByForce(
	ctx context.Context, s *signals.Signal, current commitlog.Entry,
) error {
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	of := apply.Identity{TownID: s.TownID, HandoffID: app.Handoff.HandoffID, RunID: s.RunID,
		Trace: app.Pending.Run.Trace}
	a := &application{Decoded: app, town: s.TownID, runID: s.RunID, before: current.State,
		replies: apply.NewMailbox(of)}
	why := s.ActorID + " ended the run by force; a game may have applied its command."
	v := apply.InDoubt(why)
	if app.Pending.Via != apply.RCON {
		v.Failed = &apply.Failure{Reason: apply.ReasonPluginTimeout, Message: why}
	}
	v.Attempt, v.At = app.Pending.Attempt, w.config.Now()
	_, err = w.commitEnd(ctx, a, current, &apply.NextStep{Failed: v.Failed}, &v)
	w.config.Towns.Forget(s.TownID) // cancellations come beside the turns of a town
	if err == nil {
		w.endOwn(s.TownID, s.RunID)
	}
	return err
}

// Why a run whose command is pending is not cancelled without force.
const (
	byForce        = "look at the game; with force the run is cancelled all the same"
	mayHaveArrived = "a request for the command of the run may have reached a game: " + byForce
	notKnown       = "it is not known yet whether a request for the command of the run has reached a " +
		"game: try again, or " + byForce
)

// load loads a town. A pending command of another run counts as none.
func (w *Worker) load(
	ctx context.Context, townID, runID string,
) (current commitlog.Entry, err error) {
	if townID != "" {
		current, err = w.config.Log.Load(ctx, townID)
	}
	if current.Pending != nil && current.Pending.Run.RunID != runID {
		current.Pending = nil
	}
	return current, err
}

// commitPendingAs stores a pending command, which stays pending.
func (w *Worker) commitPendingAs(
	ctx context.Context, townID string, current commitlog.Entry, p *apply.Pending,
) error {
	after := current
	after.Pending = p
	rec := commitlog.Record{Kind: commitlog.KindPending, TownID: townID}
	err := w.config.Log.CommitTown(ctx, &rec, &after, current.Seq)
	w.config.Towns.Forget(townID)
	return err
}

// commitCancelled ends the run of the command that is pending in a town: from this message on the
// command is not asked for any more. As for a result, the run is closed to others before.
func (w *Worker) commitCancelled(
	ctx context.Context, townID string, current commitlog.Entry, why lifecycle.Cancellation,
) error {
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	run, err := w.config.InHand.Cancel(ctx, &inhand.Run{Decoded: app, TownID: townID,
		Before: current.State}, why)
	if err != nil {
		return err
	}
	after := current
	after.Pending = nil
	rec := commitlog.Record{Kind: commitlog.KindCancelled, TownID: townID, Run: run}
	failpoint.At(failpoint.Closing)
	err = w.config.Log.CommitTown(ctx, &rec, &after, current.Seq)
	w.config.Towns.Forget(townID)
	if err != nil {
		return err
	}
	failpoint.At(failpoint.Withdrawn)
	w.endOwn(townID, run.RunID)
	return nil
}

// endOwn has this server's application of a run, which an operator has ended, look at the log, and
// gives what waited behind it its turn.
func (w *Worker) endOwn(townID, runID string) {
	if own, ok := w.applications.Of(townID, runID); ok {
		own.gate.Close()
		own.replies.Deliver(apply.Reply{Look: true})
	}
	w.queue.Unpark(townID)
}
