package signals

import (
	"context"
	"fmt"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// Recorder makes and stores the runs of signals. Every member must be set. It is safe for
// concurrent use.
type Recorder struct {
	Log *commitlog.Log
	// NewProducer returns a producer of the events of a new run of a plan.
	NewProducer func(planID, planVersion string) (*runevents.Producer, error)
}

// Accepted returns the run of a signal that is accepted.
func (r *Recorder) Accepted(s *Signal) (*runevents.Run, error) { return r.run(s, "") }

// Refuse records that a signal was refused, and returns the refusal, a *RefusedError, or the error
// that kept it from being recorded.
func (r *Recorder) Refuse(ctx context.Context, s *Signal, code wire.Code, message string) error {
	run, err := r.run(s, string(code))
	if err != nil {
		return err
	}
	if err := r.Record(ctx, s.TownID, run); err != nil {
		return err
	}
	return &RefusedError{Code: code, SignalID: run.RunID, Message: message}
}

// Record stores the run of a signal that changes no state.
func (r *Recorder) Record(ctx context.Context, townID string, run *runevents.Run) error {
	rec := commitlog.Record{Kind: commitlog.KindSignal, TownID: townID, Run: run}
	return r.Log.RefuseRecord(ctx, &rec, wire.SignalSubject(r.Log.World), nil)
}

// run returns the run of a signal; refused is "" for one that is accepted.
func (r *Recorder) run(s *Signal, refused string) (*runevents.Run, error) {
	p, err := r.NewProducer(lifecycle.SignalPlan, lifecycle.SignalVersion)
	if err != nil {
		return nil, err
	}
	if err := lifecycle.EmitSignal(p, s.Payload(), refused); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a signal: %w", err)
	}
	return p.Run(), nil
}
