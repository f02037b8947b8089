package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// reapInterval is the pause between two looks at the runs without a delivery. Once a run has been
// closed for closingTimeout, its decision is in the log or will not come.
const (
	reapInterval   = 5 * time.Second
	closingTimeout = 30 * time.Second
)

// reaper ends the waiting runs that nobody waits in: neither a delivery nor a command. It is called by one
// goroutine.
type reaper struct {
	log          *records.Log
	index        *index.Index
	finalRecords *runs.FinalRecords
	stepper      *stepper.Stepper
	handoffs     *Handoffs
	alerts       *alerts.Alerts
	now          func() time.Time
	logger       *slog.Logger
}

// reapWaiting ends, until ctx is done, the waiting runs that have no delivery in this engine: runs of
// earlier writers, and runs whose end this engine could not store.
func (r *reaper) reapWaiting(ctx context.Context) {
	for ctx.Err() == nil {
		position := r.index.Position()
		_, err := r.index.CatchUp(ctx)
		starts := r.index.OpenRunStarts()
		if err == nil && r.stepper.HasLease() {
			for _, seq := range starts {
				r.reap(ctx, seq)
			}
		}
		if err != nil || len(starts) > 0 {
			_ = backoff.Sleep(ctx, reapInterval)
		} else {
			awaitNews(ctx, r.index, position, reapInterval)
		}
	}
}

// reap ends the run that begins at a log sequence, unless a delivery has it or it has an end.
func (r *reaper) reap(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	rec, _, err := r.log.RecordAt(ctx, seq)
	if err == nil && rec.Run == nil {
		err = commitlog.ErrDamaged
	}
	if err != nil {
		if !errors.Is(err, commitlog.ErrGone) {
			r.warn(ctx, "a run that waits cannot be read", seq, err)
		}
		return
	}
	runID, isWaiting := rec.Run.RunID, false
	for d := range r.handoffs.deliveries(rec.TownID) {
		if d.run.RunID == runID {
			return
		}
	}
	err = r.log.RetryLostRaces(ctx, func() error {
		isWaiting = false // an earlier try may have lost its race against the record that ended the run
		tail, err := r.log.Tail(ctx, runID, 0)
		if err != nil {
			return err
		}
		if over, err := r.isOver(ctx, &tail, runID); over || err != nil {
			return err
		}
		isWaiting = true
		return r.cancelLeftRun(ctx, &tail, machine.Cancellation{
			Code:   machine.CancelledLeft,
			Reason: "The server in which the handoff waited did not judge it.",
		})
	})
	if isWaiting {
		about := alerts.About{TownID: rec.TownID, RunID: runID, Trace: rec.Run.Trace}
		alert := alerts.LeftWaiting.Alert(about)
		if err != nil {
			alert = alerts.LeftUncancelled.Alert(about, "{error}", err.Error())
		}
		r.alerts.RaiseOnce(alert)
	}
	if err != nil {
		r.warn(ctx, "a run that was left waiting cannot be ended yet", runID, err)
	}
}

func (r *reaper) warn(ctx context.Context, text string, run any, err error) {
	if ctx.Err() == nil {
		r.logger.Warn(text, "run", run, "error", err)
	}
}

// isOver reports whether a run need not be ended: it has an end, or may get one soon, or its command
// is being applied.
func (r *reaper) isOver(ctx context.Context, tail *machine.RunTail, runID string) (bool, error) {
	if tail.FirstRecord == nil || tail.Cancelled {
		return true, nil
	}
	current, err := r.log.Load(ctx, tail.FirstRecord.TownID)
	switch {
	case err != nil:
		return false, err
	case current.Pending != nil && current.Pending.Run.RunID == runID:
		return true, nil
	}
	if ended, err := r.finalRecords.HasEnded(ctx, runID); ended || err != nil || !tail.Closed {
		return ended, err
	}
	closing, err := r.log.Store.At(ctx, tail.Guard)
	if err != nil || closing == nil || r.now().Sub(commitlog.PersistedAt(closing.Header, closing.Time)) < closingTimeout {
		return true, err
	}
	return r.isForgotten(ctx, tail)
}

// isForgotten reports whether the log may have discarded the end of a closed run. That is so if the
// town's history, or the history of its refused runs, is full and begins after the close.
func (r *reaper) isForgotten(ctx context.Context, tail *machine.RunTail) (bool, error) {
	token := wire.TownToken(tail.FirstRecord.TownID)
	for _, subject := range []string{
		layout.LogSubject(r.log.World, token), layout.RefusedSubject(r.log.World, token),
	} {
		oldest, err := r.log.Next(ctx, subject, 1)
		if err != nil {
			return false, err
		}
		if oldest == nil || oldest.Sequence <= tail.Guard {
			continue
		}
		if r.log.Stream == nil {
			kept, err := r.log.CountMessages(ctx, subject)
			if err != nil || kept >= r.log.HistoryLimit() {
				return err == nil, err
			}
			continue
		}
		counts, err := commitlog.SubjectsOf(ctx, r.log.Stream, subject)
		if err != nil {
			return false, err
		}
		settings, err := worldsettings.Read(ctx, r.log.Log)
		if err != nil {
			return false, err
		}
		// A history that was full before its limit was raised has discarded messages too.
		if int64(counts[subject]) >= settings.MinHistory {
			return true, nil
		}
	}
	return false, nil
}

// cancelLeftRun cancels a run that waits in any server; tail is the run's end in the log. The server
// in which the run waits answers the client. If the run has gone on, the error is
// commitlog.ErrLostRace.
func (r *reaper) cancelLeftRun(
	ctx context.Context, tail *machine.RunTail, cancellation machine.Cancellation,
) error {
	in := r.stepper.Input(tail.FirstRecord.TownID, nil,
		&machine.CancelWaiting{Run: tail.FirstRecord.Run.Identity, Why: cancellation})
	in.Tail = tail
	_, err := r.stepper.Step(ctx, machine.Town{}, in)
	return err
}
