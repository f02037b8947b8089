package worldengine

import (
	"context"

	"worldengine/worldengine/machine"
)

// cancelRun ends a run that waits for the end of a pause or behind a command, or whose own command
// no game has. The client of the handoff is answered when its town has its next turn.
func (e *Engine) cancelRun(ctx context.Context, s *Signal) (c Control, err error) {
	if s.Run, err = e.newRun(machine.SignalPlan, machine.SignalVersion); err != nil {
		return Control{}, err
	}
	inHand := false
	err = e.log.Retry(ctx, func() error {
		tail, err := e.log.Tail(ctx, s.RunID, 0)
		if err != nil {
			return err
		}
		if tail.Waiting != nil {
			s.TownID = tail.Waiting.TownID
		} else if s.TownID, err = e.ends.TownOf(ctx, s.RunID); err != nil {
			return err
		}
		if inHand = !isWaiting(&tail); inHand {
			return nil
		}
		// Behind the tail: a handoff that was judged before is pending there, or its run is closed.
		current, err := e.log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		if inHand = current.Pending != nil && current.Pending.Run.RunID == s.RunID; inHand {
			return nil
		}
		why := machine.Cancellation{SignalID: s.Run.RunID, Reason: s.Reason}
		if err := e.endWaiting(ctx, &tail, why); err != nil {
			return err
		}
		c, err = e.signalledCancel(ctx, s)
		return err
	})
	if err == nil && inHand {
		if err = e.games.Cancel(ctx, s); err == nil {
			c, err = e.signalledCancel(ctx, s)
		}
	}
	return c, err
}

// signalledCancel records the signal of a cancellation that is stored, and has the town go on.
func (e *Engine) signalledCancel(ctx context.Context, s *Signal) (Control, error) {
	e.cancelled.Add(s.RunID, struct{}{})
	e.queue.Unpark(s.TownID)
	if err := e.tell(ctx, s, ""); err != nil {
		return Control{}, err
	}
	c, err := e.Control(ctx, s.TownID)
	c.SignalID = s.Run.RunID
	return c, err
}
