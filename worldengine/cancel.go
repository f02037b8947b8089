package worldengine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/inhand"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// A run whose command is pending ends by a record of its town, as by a result. Before it every
// server that may have sent a request says that none can have arrived
// (docs/adr/0025-cancelling-what-is-being-applied.md).

// maxCancelWait bounds how long an operator waits for what the servers say.
const maxCancelWait = 6 * time.Second

// cancelWait is how long the servers have to say whether a request has arrived: each looks at the
// log before it sends one again.
func (e *Engine) cancelWait() time.Duration {
	return min(2*e.config.Plugin.Resend+time.Second, maxCancelWait)
}

// cancelRun ends a run that waits for the end of a pause or behind a command, or whose own command
// no game has. The instance that has the handoff answers its client.
func (e *Engine) cancelRun(ctx context.Context, s *Signal) (c Control, err error) {
	inHand := false
	err = e.log.Retry(ctx, func() error {
		tail, err := e.log.Tail(ctx, s.RunID, 0)
		if err != nil {
			return err
		}
		if tail.Waiting != nil {
			s.TownID = tail.Waiting.TownID
		} else if s.TownID, err = e.townOfRun(ctx, s.RunID); err != nil {
			return err
		}
		if inHand = !waiting.Waits(&tail); inHand {
			return nil
		}
		// Behind the tail: what was judged before is pending there, or closed.
		current, err := e.log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		if inHand = current.Pending != nil && current.Pending.Run.RunID == s.RunID; inHand {
			return nil
		}
		signal, err := e.recorder().Accepted(s)
		if err != nil {
			return err
		}
		why := lifecycle.Cancellation{SignalID: signal.RunID, Reason: s.Reason}
		if err := e.waiting.End(ctx, &tail, why); err != nil {
			return err
		}
		c, err = e.signalledCancel(ctx, s, signal)
		return err
	})
	if err == nil && inHand {
		return e.cancelInHand(ctx, s)
	}
	return c, err
}

// signalledCancel records the signal of a cancellation that is stored, and has the town go on.
func (e *Engine) signalledCancel(
	ctx context.Context, s *Signal, signal *runevents.Run,
) (Control, error) {
	e.cancelled.Add(s.RunID, struct{}{})
	e.queue.Unpark(s.TownID)
	return Control{TownID: s.TownID, SignalID: signal.RunID},
		e.recorder().Record(ctx, s.TownID, signal)
}

// readTownOfRun returns the town of a run of the engine, "" where there is no such run.
func (e *Engine) readTownOfRun(ctx context.Context, runID string) (string, error) {
	run, err := e.runs.Get(ctx, runID)
	if errors.Is(err, runs.ErrUnknownRun) {
		return "", nil
	}
	return startedTown(&run), err
}

// startedTown returns the town that the start of a run names. The run of another producer may name
// a town that it is not of.
func startedTown(run *runevents.Snapshot) string {
	var asked struct {
		TownID string `json:"townId"`
	}
	if json.Unmarshal(run.Metadata.Started, &asked) != nil {
		return ""
	}
	return asked.TownID
}

// cancelInHand ends a run whose command is pending: when every server that may have asked a game
// for it says that no request can have arrived, or with force at once.
func (e *Engine) cancelInHand(ctx context.Context, s *Signal) (Control, error) {
	signal, err := e.recorder().Accepted(s)
	if err != nil {
		return Control{}, err
	}
	why := lifecycle.Cancellation{SignalID: signal.RunID, Reason: s.Reason}
	var seq uint64
	err = e.log.Retry(ctx, func() error {
		current, err := e.pendingOf(ctx, s.TownID, s.RunID)
		if err != nil {
			return err
		}
		if current.Pending == nil {
			return e.recorder().Refuse(ctx, s, wire.CodeRunNotWaiting,
				"the run is not one that waits, and no command of it is being applied")
		}
		seq = current.Seq
		if s.Force {
			why.Code = lifecycle.CancelledByForce
			return e.commitCancelled(ctx, s.TownID, current, why)
		}
		if current.Pending.MayHaveArrived() {
			return e.recorder().Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
		}
		if current.Pending.Wish != nil {
			return nil // of another operator: one answer is that of both
		}
		wish := &apply.Wish{SignalID: signal.RunID, Reason: s.Reason}
		seq, err = e.commitPendingAs(ctx, s.TownID, current, current.Pending.Wished(wish))
		failpoint.At(failpoint.Wished)
		return err
	})
	if err == nil && !s.Force {
		err = e.awaitCancelled(ctx, s, seq)
	}
	if err != nil {
		return Control{}, err
	}
	if s.Force {
		e.alerts.RaiseOnce(e.environment().CancelledByForce(alerts.About{TownID: s.TownID,
			RunID: s.RunID}, s.ActorID))
	}
	return e.signalledCancel(ctx, s, signal)
}

// Why a run whose command is pending is not cancelled without force.
const (
	byForce        = "look at the game; with force the run is cancelled all the same"
	mayHaveArrived = "a request for the command of the run may have reached a game: " + byForce
	notKnown       = "not every server that may have asked a game for the command of the run has " +
		"said that no request arrived: one has ended, or waits for an answer; try again, or " +
		byForce
)

// pendingOf loads a town. What is pending there of another run than the given one counts as
// nothing.
func (e *Engine) pendingOf(
	ctx context.Context, townID, runID string,
) (current commitlog.Entry, err error) {
	if townID != "" {
		current, err = e.log.Load(ctx, townID)
	}
	if current.Pending != nil && current.Pending.Run.RunID != runID {
		current.Pending = nil
	}
	return current, err
}

// awaitCancelled waits until a wish that is stored at a sequence of the log is fulfilled or
// refused. After cancelWait it is withdrawn.
func (e *Engine) awaitCancelled(ctx context.Context, s *Signal, seq uint64) error {
	until := time.Now().Add(e.cancelWait())
	return e.log.Retry(ctx, func() error {
		for {
			current, err := e.pendingOf(ctx, s.TownID, s.RunID)
			if err != nil {
				return err
			}
			switch p := current.Pending; {
			case p == nil:
				return e.endedOtherwise(ctx, s, seq)
			case p.Wish == nil && p.MayHaveArrived():
				return e.recorder().Refuse(ctx, s, wire.CodeRunInHand, mayHaveArrived)
			case p.Wish == nil:
				return e.recorder().Refuse(ctx, s, wire.CodeRunInHand, notKnown)
			case !time.Now().Before(until):
				if err := e.withdraw(ctx, s.TownID, current); err != nil {
					return err
				}
				continue
			}
			a, own := e.applications.Of(s.TownID, s.RunID)
			if !own || !e.sayArrival(ctx, a, current) {
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
func (e *Engine) endedOtherwise(ctx context.Context, s *Signal, seq uint64) error {
	end, err := e.log.EndOfPending(ctx, s.TownID, s.RunID, seq)
	if err != nil || end == commitlog.KindCancelled {
		return err
	}
	return e.recorder().Refuse(ctx, s, wire.CodeRunNotWaiting,
		"the run has ended: its command was answered before")
}

// sayArrival says in the log, where an operator wishes to cancel the run of a, whether a request of
// this server may have arrived; the last server that says no ends the run. It reports whether that
// is stored, or nothing is left to be said. Where the fate of a request is not known yet, this
// server says nothing.
func (e *Engine) sayArrival(ctx context.Context, a *application, current commitlog.Entry) bool {
	p := current.Pending
	if p == nil || p.Wish == nil {
		return true
	}
	var err error
	switch arrival := a.gate.Close(); {
	case arrival == apply.MayArrive:
		return false
	case arrival == apply.MayHaveArrived:
		_, err = e.commitPendingAs(ctx, a.town, current, p.Arrived())
	case p.MayHaveArrived(): // a wish is stored only where that is not so
		_, err = e.commitPendingAs(ctx, a.town, current, p.Wished(nil))
	default:
		rest := p.WithoutAsker(e.server)
		switch len(rest.Askers) {
		case len(p.Askers): // it has been said
			return false
		case 0:
			err = e.commitCancelled(ctx, a.town, current,
				lifecycle.Cancellation{SignalID: p.Wish.SignalID, Reason: p.Wish.Reason})
		default:
			_, err = e.commitPendingAs(ctx, a.town, current, rest)
		}
	}
	return err == nil
}

// withdraw takes back a wish that not all servers have answered. Where a server ended just before
// it stored the cancellation the run stays closed to others: another server may be about to end it.
func (e *Engine) withdraw(ctx context.Context, townID string, current commitlog.Entry) error {
	_, err := e.commitPendingAs(ctx, townID, current, current.Pending.Wished(nil))
	return err
}

// mayAsk reports whether this server may send a request for the command of a, as the log has its
// town: no operator wishes to cancel the run, and this server is among those that may have asked.
// closings is how often the gate of a had been closed before that was read.
func (e *Engine) mayAsk(
	ctx context.Context, a *application, current commitlog.Entry, closings int,
) bool {
	p := current.Pending
	if p.Wish != nil {
		if a.wish.SignalID != p.Wish.SignalID {
			a.wish, a.wished = *p.Wish, time.Now()
		}
		if !e.sayArrival(ctx, a, current) && time.Since(a.wished) > 2*e.cancelWait() {
			_ = e.withdraw(ctx, a.town, current) // its server, or another one, has ended
		}
		return false
	}
	if p.Askers != nil && !slices.Contains(p.Askers, e.server) {
		if _, err := e.commitPendingAs(ctx, a.town, current, p.WithAsker(e.server)); err != nil {
			return false
		}
	}
	return a.gate.Open(closings)
}

// commitPendingAs stores what is known of a pending command, which stays so.
func (e *Engine) commitPendingAs(
	ctx context.Context, townID string, current commitlog.Entry, p *apply.Pending,
) (uint64, error) {
	after := current
	after.Pending = p
	rec := commitlog.Record{Kind: commitlog.KindPending, TownID: townID}
	err := e.log.CommitTown(ctx, &rec, &after, current.Seq)
	e.towns.Forget(townID)
	return after.Seq, err
}

// commitCancelled ends the run of the command that is pending in a town: from this message on the
// command is not asked for any more. As for a result, the run is closed to others before.
func (e *Engine) commitCancelled(
	ctx context.Context, townID string, current commitlog.Entry, why lifecycle.Cancellation,
) error {
	app, err := current.Pending.Read()
	if err != nil {
		return err
	}
	run, err := e.inHand().Cancel(ctx, &inhand.Run{Decoded: app, TownID: townID,
		Before: current.State}, why)
	if err != nil {
		return err
	}
	after := current
	after.Pending = nil
	rec := commitlog.Record{Kind: commitlog.KindCancelled, TownID: townID, Run: run}
	failpoint.At(failpoint.Closing)
	err = e.log.CommitTown(ctx, &rec, &after, current.Seq)
	e.towns.Forget(townID)
	if err != nil {
		return err
	}
	failpoint.At(failpoint.Withdrawn)
	e.sample(run.RunID, after.Seq)
	if own, ok := e.applications.Of(townID, run.RunID); ok {
		own.gate.Shut()
		own.replies.Deliver(apply.Reply{Look: true})
	}
	e.queue.Unpark(townID)
	return nil
}
