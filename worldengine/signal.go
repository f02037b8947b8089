package worldengine

import (
	"context"

	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Signal is an operator's signal.
type Signal = machine.Signal

// SignalError refuses a signal. The refusal is recorded.
type SignalError = game.RefusedError

// Control reports whether a town, or the world, is paused.
type Control = messages.Control

// tell records a signal that changes no town: refused with a code, or if that is "", accepted. It
// draws the run of the signal, unless that has one.
func (e *Engine) tell(ctx context.Context, s *Signal, code wire.Code) (err error) {
	if s.Run.RunID == "" {
		if s.Run, err = e.newRun(machine.SignalPlan, machine.SignalVersion); err != nil {
			return err
		}
	}
	in := e.steps.Input(s.TownID, nil, &machine.Told{Signal: s, Code: code})
	_, err = e.steps.Step(ctx, machine.Town{}, in)
	return err
}

// refuse records that a signal is refused, and returns the refusal, a *SignalError, or the error
// that kept it from being recorded.
func (e *Engine) refuse(ctx context.Context, s *Signal, code wire.Code, message string) error {
	if err := e.tell(ctx, s, code); err != nil {
		return err
	}
	return &SignalError{Code: code, SignalID: s.Run.RunID, Message: message}
}
