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

// FinalRecords reads how runs have ended. Every member must be set.
type FinalRecords struct {
	Log  *records.Log
	Runs RunGetter
}

// RunGetter reads runs one by one. It is a *Reader.
type RunGetter interface {
	Get(ctx context.Context, runID string) (runevents.Snapshot, error)
	EndedAt(ctx context.Context, runID string) (uint64, error)
}

// Get returns the record that ended a run of the engine, and its log sequence. The record is nil if
// the run has not ended or the log does not keep the record. The errors are EndedAt's and
// commitlog.ErrLogUnavailable.
func (r *FinalRecords) Get(ctx context.Context, runID string) (*machine.Record, uint64, error) {
	seq, err := r.Runs.EndedAt(ctx, runID)
	if err != nil || seq == 0 {
		return nil, 0, err
	}
	rec, _, err := r.Log.RecordAt(ctx, seq)
	if errors.Is(err, commitlog.ErrGone) {
		return nil, seq, nil
	}
	if err == nil && (rec.Run == nil || rec.Run.RunID != runID) {
		err = fmt.Errorf("runs: the events of run %s name log sequence %d for its end, "+
			"which has another run: handoffctl fsck says what is wrong with them", runID, seq)
	}
	return rec, seq, err
}

// Find returns the record that ended a run, as Get does. If the run events that name the record
// are gone or cannot be read, Find returns nil: no later try would find the record.
func (r *FinalRecords) Find(ctx context.Context, runID string) (*machine.Record, error) {
	rec, _, err := r.Get(ctx, runID)
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
		return nil, nil
	}
	return rec, err
}

// HasEnded reports whether a run has ended. A run of which nothing is kept has not ended.
func (r *FinalRecords) HasEnded(ctx context.Context, runID string) (bool, error) {
	run, err := r.state(ctx, runID)
	return run.Status.Terminal(), err
}

// TownOf returns the town that the start of a run names, "" if there is no such run.
func (r *FinalRecords) TownOf(ctx context.Context, runID string) (string, error) {
	run, err := r.state(ctx, runID)
	return machine.ReadStarted(&run).TownID, err
}

// state returns the state of a run, zero if there is no such run.
func (r *FinalRecords) state(ctx context.Context, runID string) (runevents.Snapshot, error) {
	run, err := r.Runs.Get(ctx, runID)
	if errors.Is(err, ErrUnknownRun) {
		return runevents.Snapshot{}, nil
	}
	return run, err
}
