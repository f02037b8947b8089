package runs

import (
	"context"
	"errors"
	"fmt"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// Ends reads how runs have ended. Every member must be set.
type Ends struct {
	Log  *records.Log
	Runs Getter
}

// Getter reads runs one by one. It is a *Reader.
type Getter interface {
	Get(ctx context.Context, runID string) (runevents.Snapshot, error)
	EndedAt(ctx context.Context, runID string) (uint64, error)
}

// End returns the record that ended a run of the engine, and its log sequence. The record is nil if
// the run has not ended or the log does not keep the record. The errors are EndedAt's and
// commitlog.ErrLogUnavailable.
func (e *Ends) End(ctx context.Context, runID string) (*machine.Record, uint64, error) {
	seq, err := e.Runs.EndedAt(ctx, runID)
	if err != nil || seq == 0 {
		return nil, 0, err
	}
	rec, _, err := e.Log.RecordAt(ctx, seq)
	if errors.Is(err, commitlog.ErrGone) {
		return nil, seq, nil
	}
	if err == nil && (rec.Run == nil || rec.Run.RunID != runID) {
		err = fmt.Errorf("worldengine: the events of run %s name log sequence %d for its end, "+
			"which has another run: handoffctl fsck says what is wrong with them", runID, seq)
	}
	return rec, seq, err
}

// Record returns the record that ended a run, as End does. If the run events that name the record
// are gone or cannot be read, Record returns nil: no later try would find the record.
func (e *Ends) Record(ctx context.Context, runID string) (*machine.Record, error) {
	rec, _, err := e.End(ctx, runID)
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
		return nil, nil
	}
	return rec, err
}

// HasEnded reports whether a run has ended. A run of which nothing is kept has not ended.
func (e *Ends) HasEnded(ctx context.Context, runID string) (bool, error) {
	run, err := e.known(ctx, runID)
	return run.Status.Terminal(), err
}

// TownOf returns the town that the start of a run names, "" if there is no such run.
func (e *Ends) TownOf(ctx context.Context, runID string) (string, error) {
	run, err := e.known(ctx, runID)
	return machine.ReadStarted(&run).TownID, err
}

// known returns the state of a run, zero if there is no such run.
func (e *Ends) known(ctx context.Context, runID string) (runevents.Snapshot, error) {
	run, err := e.Runs.Get(ctx, runID)
	if errors.Is(err, ErrUnknownRun) {
		return runevents.Snapshot{}, nil
	}
	return run, err
}
