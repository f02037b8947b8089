package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

// stored is a record of a run, with its message.
type stored struct {
	*commitlog.Record
	msg *jetstream.RawStreamMsg
}

// record reads the record of a row, which has events of a run. A record that the log does not keep
// any more is ErrUnknownRun, since the rest would tell another run; one that it keeps and cannot
// read is ErrRunDamaged.
func (s *Store) record(ctx context.Context, row *index.Row) (stored, error) {
	var subjects []string
	switch world := s.log.World; row.Kind {
	case commitlog.KindRun, commitlog.KindEvents: // they expire by their time
	case commitlog.KindSignal:
		subjects = []string{wire.SignalSubject(world)}
	case commitlog.KindRefused:
		subjects = []string{wire.RefusedSubject(world, row.Town),
			wire.RefusedSubject(world, wire.UnknownTownToken)}
	default:
		subjects = []string{wire.LogSubject(world, row.Town)}
	}
	rec, msg, err := s.log.RecordAt(ctx, row.Seq, subjects...)
	switch {
	case errors.Is(err, commitlog.ErrGone):
		return stored{}, ErrUnknownRun
	case errors.Is(err, commitlog.ErrDamaged):
		return stored{}, fmt.Errorf("%w: %w", ErrRunDamaged, err)
	case err != nil:
		return stored{}, err
	}
	return withRun(rec, msg)
}

// withRun returns a record, which has to have events of a run.
func withRun(rec *commitlog.Record, msg *jetstream.RawStreamMsg) (stored, error) {
	if rec.Run == nil {
		return stored{}, fmt.Errorf("%w: log sequence %d: a record of kind %q without a run",
			ErrRunDamaged, msg.Sequence, rec.Kind)
	}
	return stored{rec, msg}, nil
}

// find returns a run as the index has it, brought up to date with the log unless the run has ended.
func (s *Store) find(ctx context.Context, runID string) (index.Run, error) {
	run, found := s.index.Run(runID)
	if found && run.Status().Terminal() && s.index.Position() >= run.Rows[len(run.Rows)-1].Seq {
		return run, nil
	}
	if _, err := s.index.Sync(ctx); err != nil {
		return index.Run{}, err
	}
	if run, found = s.index.Run(runID); !found {
		return index.Run{}, ErrUnknownRun
	}
	return run, nil
}

// Town returns the town token of the town that a run is of. It fails as Events does.
func (s *Store) Town(ctx context.Context, runID string) (string, error) {
	if run, found := s.index.Run(runID); found {
		return run.Town, nil
	}
	run, err := s.find(ctx, runID)
	return run.Town, err
}

// EndedAt returns the log sequence of the record in which a run ended, 0 if it goes on or another
// producer ended it. It fails as Events does.
func (s *Store) EndedAt(ctx context.Context, runID string) (uint64, error) {
	run, err := s.find(ctx, runID)
	if err != nil {
		return 0, err
	}
	for i := range run.Rows {
		if row := &run.Rows[i]; row.Flags&index.Ended != 0 && row.Kind != commitlog.KindEvents {
			return row.Seq, nil
		}
	}
	return 0, nil
}
