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
func (r *signalRecorder) newSignal(request Signal) (*Signal, error) {
	signal := request.WithDefaults()
	var err error
	signal.Run, err = r.newRun(machine.SignalPlan, machine.SignalVersion)
	return &signal, err
}

// record records a signal that changes no town: refused with a code, or accepted if code is "".
func (r *signalRecorder) record(ctx context.Context, signal *Signal, code wire.Code) error {
	in := r.stepper.Input(signal.TownID, nil, &machine.RecordSignal{Signal: signal, Code: code})
	_, err := r.stepper.Step(ctx, machine.Town{}, in)
	return err
}

// refuse records that a signal is refused. It returns the refusal as a *SignalError, or the error
// that kept the refusal from being recorded.
func (r *signalRecorder) refuse(ctx context.Context, signal *Signal, refusal *approval.SignalRefusal) error {
	return cmp.Or(r.record(ctx, signal, refusal.Code), signal.RefusedBy(refusal))
}
