package worldengine

import (
	"context"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Signal takes an operator's signal. Each is a run of its own, whose events say whether it was
// accepted (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a town is a
// commit to its history.
func (e *Engine) Signal(ctx context.Context, s Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s = s.WithDefaults()
	switch {
	case s.Kind == machine.SignalCancel:
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
	return e.tell(ctx, &s, code)
}

// signal steps a town, or the world, by a signal, and returns the town behind it. The error of a
// refusal is a *SignalError.
func (e *Engine) signal(ctx context.Context, s *Signal) (out machine.Output, err error) {
	if s.Run, err = e.newRun(machine.SignalPlan, machine.SignalVersion); err != nil {
		return out, err
	}
	var drawn []runevents.DrawnID
	err = e.log.Retry(ctx, func() error {
		t, err := e.townOrWorld(ctx, s.TownID)
		if err != nil {
			return err
		}
		in := e.steps.Input(s.TownID, drawn, s)
		out, err = e.steps.Step(ctx, t, in)
		e.towns.Forget(s.TownID) // signals come beside the turns of a town
		drawn = in.Drawn
		return err
	})
	if err == nil && out.Refused != nil {
		err = &SignalError{Code: out.Refused.Code, SignalID: s.Run.RunID,
			Message: out.Refused.Message}
	}
	return out, err
}

// townOrWorld reads a town, or with "" the pause of the world as if it was a town's.
func (e *Engine) townOrWorld(ctx context.Context, townID string) (t machine.Town, err error) {
	if townID != "" {
		return e.log.Load(ctx, townID)
	}
	t.Seq, t.Paused, err = e.log.WorldPause(ctx)
	return t, err
}

// signalTown pauses or resumes a town, whatever is pending there.
func (e *Engine) signalTown(ctx context.Context, s *Signal) (Control, error) {
	out, err := e.signal(ctx, s)
	if err != nil {
		return Control{}, err
	}
	e.queue.Unpark(s.TownID)
	if out.After.Pending != nil {
		// at once, so that the next reader sees it; game.Worker.Watch does it again
		e.games.Hold(ctx, s.TownID, out.After.Pending)
	}
	return e.controlOf(s.TownID, out.After, s.Run.RunID), nil
}

// signalWorld pauses or resumes the world.
func (e *Engine) signalWorld(ctx context.Context, s *Signal) (Control, error) {
	out, err := e.signal(ctx, s)
	if err != nil {
		return Control{}, err
	}
	e.worldPause.Set(game.Pause{Seq: out.After.Seq, By: out.After.Paused})
	return e.controlOfWorld(out.After.Paused, s.Run.RunID), nil
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
	if !current.State.Exists() {
		return Control{}, fmt.Errorf("%w: %q", ErrUnknownTown, townID)
	}
	return e.controlOf(townID, current, ""), nil
}

func (e *Engine) controlOf(townID string, current commitlog.Entry, signalID string) Control {
	applying := 0
	if current.Pending != nil {
		applying = 1
	}
	return controlOf(e.worldPause.Of(current), applying, townID, signalID)
}

func (e *Engine) controlOfWorld(by *commitlog.PausedBy, signalID string) Control {
	return controlOf(by, e.games.Count(), "", signalID)
}

// controlOf returns the state of a pause, nil for none, with so many commands being applied. It
// drains while these are waited for.
func controlOf(by *commitlog.PausedBy, applying int, townID, signalID string) Control {
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
