package pending

import (
	"context"
	"slices"
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

// A run whose command is pending ends by a record of its town, as by a result. Before it every
// server that may have sent a request says that none can have arrived
// (docs/adr/0025-cancelling-what-is-being-applied.md).

// maxCancelWait bounds how long an operator waits for what the servers say.
const maxCancelWait = 6 * time.Second

// cancelWait is how long the servers have to say whether a request has arrived: each looks at the
// log before it sends one again.
func (w *Worker) cancelWait() time.Duration {
	return min(2*w.config.Policy.Resend+time.Second, maxCancelWait)
}

// Cancel ends a run whose command is pending: when every server that may have asked a game for it
// says that no request can have arrived, or with force at once. signalID is the run of the signal.
// What refuses it is recorded.
func (w *Worker) Cancel(ctx context.Context, s *signals.Signal, signalID string) error {
	why := lifecycle.Cancellation{SignalID: signalID, Reason: s.Reason}
	var seq uint64
	done := false
	err := w.config.Log.Retry(ctx, func() error {
		current, err := w.load(ctx, s.TownID, s.RunID)
		if err != nil {
			return err
		}
		if current.Pending == nil {
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunNotWaiting,
				"there is nothing to cancel: no run with this id waits, and none has a command that is "+
					"being applied; it has ended, or there is no such run")
		}
		seq = current.Seq
		if s.Force {
			why.Code = lifecycle.CancelledByForce
			return w.cancelByForce(ctx, s, current, why)
		}
		if done = current.Pending.Unasked(); done {
			return w.commitCancelled(ctx, s.TownID, current, why)
		}
		if current.Pending.MayHaveArrived() {
			return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
		}
		if current.Pending.Wish != nil {
			return nil // of another operator: one answer is that of both
		}
		wish := &apply.Wish{SignalID: signalID, Reason: s.Reason}
		seq, err = w.commitPendingAs(ctx, s.TownID, current, current.Pending.Wished(wish))
		failpoint.At(failpoint.Wished)
		return err
	})
	if err == nil && !s.Force && !done {
		err = w.awaitCancelled(ctx, s, seq)
	}
	return err
}

// cancelByForce ends the run of a pending command, whether or not a game has it. The alert is
// stored before: an operator has to look at the game, also where this server ends here. It stays
// where a result comes first, and says so.
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
	notKnown       = "not every server that may have asked a game for the command of the run has " +
		"said that no request arrived: one has ended, or waits for an answer; try again, or " +
		byForce
)

// load loads a town. What is pending there of another run than the given one counts as
// nothing.
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

// awaitCancelled waits until a wish that is stored at a sequence of the log is fulfilled or
// refused. After cancelWait it is withdrawn.
func (w *Worker) awaitCancelled(ctx context.Context, s *signals.Signal, seq uint64) error {
	until := time.Now().Add(w.cancelWait())
	return w.config.Log.Retry(ctx, func() error {
		for {
			current, err := w.load(ctx, s.TownID, s.RunID)
			if err != nil {
				return err
			}
			switch p := current.Pending; {
			case p == nil:
				return w.endedOtherwise(ctx, s, seq)
			case p.Wish == nil && p.MayHaveArrived():
				return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
			case p.Wish == nil:
				return w.config.Signals.Refuse(ctx, s, wire.CodeRunInHand, notKnown)
			case !time.Now().Before(until):
				if err := w.withdraw(ctx, s.TownID, current); err != nil {
					return err
				}
				continue
			}
			a, own := w.applications.Of(s.TownID, s.RunID)
			if !own || !w.sayArrival(ctx, a, current) {
				if err := backoff.Sleep(ctx, cancelPoll); err != nil {
					return err
				}
			}
		}
	})
}

// cancelPoll is the pause between two looks at what the servers say about a wish.
const cancelPoll = 50 * time.Millisecond

// endedOtherwise returns the refusal of a cancellation where the run that was pending at a sequence
// of the log has ended by a result.
func (w *Worker) endedOtherwise(ctx context.Context, s *signals.Signal, seq uint64) error {
	end, err := w.config.Log.EndOfPending(ctx, s.TownID, s.RunID, seq)
	if err != nil || end == commitlog.KindCancelled {
		return err
	}
	return w.config.Signals.Refuse(ctx, s, wire.CodeRunNotWaiting,
		"the run has ended: its command was answered before")
}

// sayArrival says in the log, where an operator wishes to cancel the run of a, whether a request of
// this server may have arrived; the last server that says no ends the run. It reports whether that
// is stored, or nothing is left to be said. Where the fate of a request is not known yet, this
// server says nothing.
func (w *Worker) sayArrival(ctx context.Context, a *application, current commitlog.Entry) bool {
	p := current.Pending
	if p == nil || p.Wish == nil {
		return true
	}
	var err error
	switch arrival := a.gate.Close(); {
	case arrival == apply.MayArrive:
		return false
	case arrival == apply.MayHaveArrived:
		_, err = w.commitPendingAs(ctx, a.town, current, p.Arrived())
	case p.MayHaveArrived(): // a wish is stored only where that is not so
		_, err = w.commitPendingAs(ctx, a.town, current, p.Wished(nil))
	default:
		rest := p.WithoutAsker(w.config.Server)
		switch len(rest.Askers) {
		case len(p.Askers): // it has been said
			return false
		case 0:
			err = w.commitCancelled(ctx, a.town, current,
				lifecycle.Cancellation{SignalID: p.Wish.SignalID, Reason: p.Wish.Reason})
		default:
			_, err = w.commitPendingAs(ctx, a.town, current, rest)
		}
	}
	return err == nil
}

// resignTimeout bounds how long the end of a server waits until what resign says is stored.
const resignTimeout = 2 * time.Second

// resign takes this server, which ends, off the servers that may have asked for the command of a,
// where none of its requests can have arrived: the run can be cancelled without force after that.
func (w *Worker) resign(ctx context.Context, a *application) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	err := w.config.Log.Retry(ctx, func() error {
		current, err := w.load(ctx, a.town, a.runID)
		switch p := current.Pending; {
		case err != nil:
			return err
		case p == nil || !slices.Contains(p.Askers, w.config.Server):
		case p.Wish != nil:
			w.sayArrival(ctx, a, current)
		case !p.MayHaveArrived() && a.gate.Close() == apply.NotArrived:
			_, err = w.commitPendingAs(ctx, a.town, current, p.WithoutAsker(w.config.Server))
		}
		return err
	})
	if err != nil {
		w.config.Logger.Warn("this server stops, and could not store that no request of it for a "+
			"command can have arrived: only run.cancel with force ends its run until another "+
			"server has it answered", "town", a.town, "run", a.runID,
			a.replies.Trace.LogAttr(), "error", err)
	}
}

// withdraw takes back a wish that not all servers have answered. Where a server ended just before
// it stored the cancellation the run stays closed to others: another server may be about to end it.
func (w *Worker) withdraw(ctx context.Context, townID string, current commitlog.Entry) error {
	_, err := w.commitPendingAs(ctx, townID, current, current.Pending.Wished(nil))
	return err
}

// mayAsk reports whether this server may send a request for the command of a, as the log has its
// town: no operator wishes to cancel the run, and this server is among those that may have asked.
// closings is how often the gate of a had been closed before that was read.
func (w *Worker) mayAsk(
	ctx context.Context, a *application, current commitlog.Entry, closings int,
) bool {
	p := current.Pending
	if p.Wish != nil {
		if a.wish.SignalID != p.Wish.SignalID {
			a.wish, a.wished = *p.Wish, time.Now()
		}
		if !w.sayArrival(ctx, a, current) && time.Since(a.wished) > 2*w.cancelWait() {
			_ = w.withdraw(ctx, a.town, current) // its server, or another one, has ended
		}
		return false
	}
	if !slices.Contains(p.Askers, w.config.Server) {
		if _, err := w.commitPendingAs(ctx, a.town, current,
			p.WithAsker(w.config.Server)); err != nil {
			return false
		}
	}
	return a.gate.Open(closings)
}

// commitPendingAs stores what is known of a pending command, which stays so.
func (w *Worker) commitPendingAs(
	ctx context.Context, townID string, current commitlog.Entry, p *apply.Pending,
) (uint64, error) {
	after := current
	after.Pending = p
	rec := commitlog.Record{Kind: commitlog.KindPending, TownID: townID}
	err := w.config.Log.CommitTown(ctx, &rec, &after, current.Seq)
	w.config.Towns.Forget(townID)
	return after.Seq, err
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
		own.gate.Shut()
		own.replies.Deliver(apply.Reply{Look: true})
	}
	w.queue.Unpark(townID)
}
