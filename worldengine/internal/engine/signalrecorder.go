package engine

import (
	"cmp"
	"context"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/wire"
)

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
func (r *signalRecorder) refuse(ctx context.Context, s *Signal, refusal *approval.SignalRefusal) error {
	return cmp.Or(r.record(ctx, s, refusal.Code), s.RefusedBy(refusal))
}
