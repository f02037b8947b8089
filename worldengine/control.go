package worldengine

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/signals"
	"worldengine/worldengine/wire"
)

// Signal takes an operator's signal. Each is a run of its own, whose events say whether it was
// accepted (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a town is a
// commit to its history, so it holds for all instances at once; one of the world reaches the others
// within moments.
func (e *Engine) Signal(ctx context.Context, s Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s = s.WithDefaults()
	switch {
	case s.Kind == lifecycle.SignalCancel:
		return e.cancelRun(ctx, &s)
	case s.TownID == "":
		return e.signalWorld(ctx, &s)
	}
	return e.signalTown(ctx, &s)
}

// Reject records that a signal is refused which never came to be looked at, with the code of the
// refusal.
func (e *Engine) Reject(ctx context.Context, s Signal, code wire.Code) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s = s.WithDefaults()
	err := e.recorder().Refuse(ctx, &s, code, "")
	if _, recorded := errors.AsType[*SignalError](err); recorded {
		return nil
	}
	return err
}

// signalTown pauses or resumes a town, whatever is pending there.
func (e *Engine) signalTown(ctx context.Context, s *Signal) (c Control, err error) {
	var after commitlog.Entry
	err = e.log.Retry(ctx, func() error {
		current, err := e.log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		if current.Seq == 0 {
			return e.recorder().Refuse(ctx, s, wire.CodeUnknownTown, "there is no such town")
		}
		if code, message := s.Refusal(current.Paused); code != "" {
			return e.recorder().Refuse(ctx, s, code, message)
		}
		run, err := e.recorder().Accepted(s)
		if err != nil {
			return err
		}
		after = current
		after.Paused = s.PausedBy(run.RunID, time.Now())
		rec := commitlog.Record{Kind: commitlog.KindControl, TownID: s.TownID, Run: run}
		msg, err := rec.Message(wire.LogSubject(e.config.World, wire.TownToken(s.TownID)), &after)
		if err != nil {
			return err
		}
		_, err = e.log.Commit(ctx, msg, current.Seq)
		e.towns.Forget(s.TownID)
		if err != nil {
			return err
		}
		e.queue.Unpark(s.TownID)
		c = e.controlOf(s.TownID, after, run.RunID)
		return nil
	})
	if err == nil && after.Pending != nil {
		// at once, so that the next reader sees it; pending.Worker.Watch does it again
		e.pending.Hold(ctx, s.TownID, after)
	}
	return c, err
}

// signalWorld pauses or resumes the world.
func (e *Engine) signalWorld(ctx context.Context, s *Signal) (c Control, err error) {
	err = e.log.Retry(ctx, func() error {
		guard, paused, err := e.log.WorldPause(ctx)
		if err != nil {
			return err
		}
		if code, message := s.Refusal(paused); code != "" {
			return e.recorder().Refuse(ctx, s, code, message)
		}
		run, err := e.recorder().Accepted(s)
		if err != nil {
			return err
		}
		rec := commitlog.Record{Kind: commitlog.KindControl, Run: run,
			Paused: s.PausedBy(run.RunID, time.Now())}
		msg, err := rec.Message(wire.ControlSubject(e.config.World), nil)
		if err != nil {
			return err
		}
		seq, err := e.log.Commit(ctx, msg, guard)
		if err != nil {
			return err
		}
		e.worldPause.Set(signals.Pause{Seq: seq, By: rec.Paused})
		c = e.controlOfWorld(rec.Paused, run.RunID)
		return nil
	})
	return c, err
}

// signalFollower returns what hears of the signals that any server has recorded.
func (e *Engine) signalFollower() *signals.Follower {
	return &signals.Follower{
		Log: e.log, World: e.worldPause, Cancelled: e.runCancelled, Logger: e.config.Logger,
	}
}

// runCancelled answers the client of a run that was cancelled while it waited, if it is this
// server's.
func (e *Engine) runCancelled(townID, runID string) {
	e.cancelled.Add(runID, struct{}{})
	e.queue.Unpark(townID)
}

// Control returns whether a town, or with "" the world, is paused.
func (e *Engine) Control(ctx context.Context, townID string) (Control, error) {
	if townID == "" {
		_, paused, err := e.log.WorldPause(ctx)
		if err != nil {
			return Control{}, err
		}
		return e.controlOfWorld(paused, ""), nil
	}
	current, err := e.log.Load(ctx, townID)
	if err != nil {
		return Control{}, err
	}
	if current.Seq == 0 {
		return Control{}, ErrUnknownTown
	}
	return e.controlOf(townID, current, ""), nil
}

func (e *Engine) controlOf(townID string, current commitlog.Entry, signalID string) Control {
	c := Control{TownID: townID, By: e.worldPause.Of(current), SignalID: signalID}
	c.Paused = c.By != nil
	if current.Pending != nil {
		c.Applying = 1
	}
	c.Draining = c.Paused && c.Applying > 0 && c.By.Draining(time.Now())
	return c
}

func (e *Engine) controlOfWorld(by *commitlog.PausedBy, signalID string) Control {
	c := Control{By: by, Applying: e.pending.Count(), SignalID: signalID}
	c.Paused = c.By != nil
	c.Draining = c.Paused && c.Applying > 0 && c.By.Draining(time.Now())
	return c
}
