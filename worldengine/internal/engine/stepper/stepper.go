// Package stepper has the machine decide about inputs, and commits the records that the machine
// returns. It gives each input its time and ids, and each record its subject and guard.
package stepper

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/kit/failpoint"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// Stepper makes the steps of a world's towns, in the world's writer. Every member must be set unless its
// comment says otherwise. It is safe for concurrent use.
type Stepper struct {
	Log *records.Log
	// TownCache has the towns as of the last steps. After an error Step forgets the town.
	TownCache *records.TownCache
	Settings  machine.Settings
	// Now is the clock of the inputs, and NewID draws a UUID v4.
	Now   func() time.Time
	NewID func() string
	// HasLease reports whether this server still has the writer's lease. A server that was suspended must take over
	// nothing that the next writer has in hand.
	HasLease func() bool
	// RequiredHistory returns the part of its history that a town needs, whose last message is at a sequence.
	// OnHistoryFull is called with that after a record found no room. Both are nil if histories are not bounded.
	RequiredHistory func(ctx context.Context, townID string, seq uint64) (records.RequiredHistory, error)
	OnHistoryFull   func(townID string, needs records.RequiredHistory)
	// Logger gets the troubles that an input outlives.
	Logger *slog.Logger

	results [5]atomic.Int64 // in the order of handoff.Statuses
}

// Results returns how many results of each status were committed.
func (s *Stepper) Results() map[handoff.Status]int64 {
	counts := map[handoff.Status]int64{}
	for i, status := range handoff.Statuses() {
		counts[status] = s.results[i].Load()
	}
	return counts
}

// Input returns an input with the present time. drawn are the ids that the events of the input got
// in an earlier step.
func (s *Stepper) Input(
	townID string, drawn []runlog.DrawnID, event machine.Event,
) *machine.Input {
	at := s.Now().UTC().Truncate(time.Millisecond) // the precision of events
	return &machine.Input{TownID: townID, At: at, IDs: s.ids(event), Drawn: drawn, Event: event}
}

func (s *Stepper) ids(event machine.Event) []string {
	ids := make([]string, event.MaxIDs())
	for i := range ids {
		ids[i] = s.NewID()
	}
	return ids
}

// Step has the machine decide about an input of a town, and commits the records in their order. If the
// event needs a tail and in.Tail is nil, Step reads the tail; the records move it on. The errors are
// machine.Step's, commitlog.Log.Commit's, CheckRunRoom's and CheckRoom's. If the town or the run has changed
// meanwhile, the error is commitlog.ErrLostRace, and in.Drawn has the ids for the next try. If there is
// no room for another attempt of a command, the machine ends the run with this one (LastAttempt).
func (s *Stepper) Step(
	ctx context.Context, t machine.Town, in *machine.Input,
) (out machine.Output, err error) {
	defer func() {
		if err != nil {
			s.TownCache.Forget(in.TownID) // the town may have changed, and is read from the log again
		}
	}()
	if runID, emitted := in.Event.TailRun(&t); runID != "" && in.Tail == nil {
		tail, err := s.Log.Tail(ctx, runID, emitted)
		if err != nil {
			return machine.Output{}, err
		}
		in.Tail = &tail
	}
	out, err = s.stepOnce(ctx, t, in)
	if end, ok := in.Event.(*machine.EndAttempt); ok && noRoom(err) && out.NextTown.Pending != nil {
		in.Event = &machine.EndAttempt{AttemptResult: end.AttemptResult, LastAttempt: true}
		in.IDs, in.Drawn = s.ids(in.Event), nil
		out, err = s.stepOnce(ctx, t, in)
	}
	return out, err
}

func (s *Stepper) stepOnce(
	ctx context.Context, t machine.Town, in *machine.Input,
) (machine.Output, error) {
	out, err := machine.Step(t, in, &s.Settings)
	if _, ok := in.Event.(*machine.Judge); ok {
		failpoint.Hit(failpoint.Judged)
	}
	if err != nil {
		return out, err
	}
	for _, rec := range []*machine.Record{out.RunRecordBefore, out.Record, out.RunRecordAfter} {
		if rec == nil {
			continue
		}
		switch err := s.commit(ctx, t, in.Tail, &out, rec); {
		case err == nil:
			s.noteStored(&out, rec)
		case rec == out.RunRecordAfter:
			s.Logger.Warn("a closed run cannot be reopened; others cannot append to it",
				"run", rec.Run.RunID, rec.Run.Trace.LogAttr(), "error", err)
		default:
			if errors.Is(err, commitlog.ErrLostRace) && rec.Run != nil {
				in.Drawn = runlog.EventIDs(rec.Run)
			}
			return out, err
		}
	}
	return out, nil
}

// commit stores a record of an output. It sets out.NextTown.Seq, or adds the record to its run's tail.
func (s *Stepper) commit(
	ctx context.Context, t machine.Town, tail *machine.RunTail, out *machine.Output, rec *machine.Record,
) error {
	world := s.Log.World
	switch rec.Subject() {
	case machine.TownSubject:
		if err := s.CheckRoom(ctx, t, out); err != nil {
			return err
		}
		return s.Log.CommitTown(ctx, rec, &out.NextTown, t.Seq)
	case machine.RunSubject:
		if err := s.Log.CheckRunRoom(tail.Stored, purposeStorage[rec.Purpose].run); err != nil {
			return err
		}
		seq, err := s.Log.CommitRun(ctx, rec, tail.Guard)
		if err == nil {
			tail.Add(rec, seq)
		}
		return err
	case machine.PauseSubject:
		msg, err := records.Encode(rec, layout.PauseSubject(world), nil)
		if err == nil {
			out.NextTown.Seq, err = s.Log.Commit(ctx, msg, t.Seq)
		}
		return err
	case machine.SignalSubject:
		return s.Log.CommitAside(ctx, rec, layout.SignalSubject(world), nil)
	case machine.RefusedSubject:
		token, judged := wire.TownToken(rec.TownID), &t.Seq
		if !t.State.Exists() {
			token = layout.UnknownTownToken
		}
		if out.Unguarded {
			judged = nil
		}
		return s.Log.CommitAside(ctx, rec, layout.RefusedSubject(world, token), judged)
	}
	panic("stepper: the machine makes no record of kind " + string(rec.Kind))
}

// noteStored notes that a record of an output is stored.
func (s *Stepper) noteStored(out *machine.Output, rec *machine.Record) {
	if rec.Subject() == machine.TownSubject {
		s.TownCache.Set(rec.TownID, out.NextTown)
	}
	if point := purposeStorage[rec.Purpose].failpoint; point != "" {
		failpoint.Hit(point)
	}
	if rec == out.Record && out.Answer != nil {
		s.results[slices.Index(handoff.Statuses(), out.Answer.Result.Status)].Add(1)
	}
}

func noRoom(err error) bool {
	return errors.Is(err, records.ErrHistoryFull) || errors.Is(err, records.ErrRunFull)
}

// CheckRoom returns records.ErrHistoryFull if there is no room for the record of an output on its
// town's log subject.
func (s *Stepper) CheckRoom(ctx context.Context, t machine.Town, out *machine.Output) error {
	isNew := !t.State.Exists() && t.Removed == nil
	if s.RequiredHistory == nil || isNew || out.NextTown.LastState().Epoch() > t.LastState().Epoch() {
		return nil
	}
	townID := out.Record.TownID
	needs, err := s.RequiredHistory(ctx, townID, t.Seq)
	if err != nil {
		return err
	}
	err = s.Log.CheckHistoryRoom(needs, purposeStorage[out.Record.Purpose].town)
	if err != nil {
		s.OnHistoryFull(townID, needs)
	}
	return err
}
