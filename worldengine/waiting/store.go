package waiting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/stepper"
	"worldengine/worldengine/wire"
)

// The pauses of Reap between its looks at left runs, and at other writers' runs; and the extra time
// after which a closed run's decision is in the log or will not come.
const (
	reapEvery   = time.Second
	sweepEvery  = 10 * time.Second
	closingTime = 30 * time.Second
)

// Store records the runs that wait for their town. It is safe for concurrent use.
type Store struct {
	steps  *stepper.Stepper
	config Config
	// trouble limits the warnings about runs that cannot be ended: a full disk affects all of them.
	trouble backoff.Seldom

	mu sync.Mutex
	// own are the runs that this writer has recorded, or is about to, and whose end is not known.
	// left are the runs without a delivery whose end the log may lack, and since when.
	own  map[string]struct{}
	left map[string]time.Time
}

// Config configures a Store. Every member must be set.
type Config struct {
	// History is how many messages the log keeps of a town.
	History int64
	Ends    *runs.Ends
	// Alerts gets an alert about each left run once its end is stored, or cannot be.
	Alerts *alerts.Alerts
	Logger *slog.Logger
}

// New returns the waiting runs of the writer of a world.
func New(steps *stepper.Stepper, config Config) *Store {
	return &Store{steps: steps, config: config, own: map[string]struct{}{},
		left: map[string]time.Time{}}
}

// Done marks that a run's end, or the decision about it, is in the log, or that the run never was.
func (s *Store) Done(r *Run) { s.forget(r.Identity.RunID) }

func (s *Store) forget(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, runID)
	delete(s.own, runID)
}

// hold marks a run that is about to be recorded as this writer's.
func (s *Store) hold(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[runID] = struct{}{}
}

// Leave marks that a run's delivery is answered, and that the log may lack its end. Reap finds out.
func (s *Store) Leave(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[r.Identity.RunID] = time.Now()
}

// Reap ends left runs until ctx is done: this writer's, and earlier ones' that the index knows. A
// writer that lost its lease may have recorded some after this one began.
func (s *Store) Reap(ctx context.Context, ix *index.Index) {
	began := time.Now()
	for next := began; ctx.Err() == nil; _ = backoff.Sleep(ctx, reapEvery) {
		if !s.steps.Serves() {
			continue
		}
		if now := time.Now(); !now.Before(next) {
			before := now.Add(-closingTime)
			if before.Before(began) {
				before = began
			}
			s.sweep(ctx, ix.Waiting(before))
			next = now.Add(sweepEvery)
		}
		s.reapLeft(ctx)
	}
}

// sweep marks the runs with first records at the sequences as left, except this writer's.
func (s *Store) sweep(ctx context.Context, seqs []uint64) {
	for _, seq := range seqs {
		rec, _, err := s.steps.Log.RecordAt(ctx, seq)
		if err == nil && rec.Run == nil {
			err = commitlog.ErrDamaged
		}
		if err != nil {
			if !errors.Is(err, commitlog.ErrGone) {
				s.warn(ctx, "a run that waits cannot be read", seq, err)
			}
			continue
		}
		s.mu.Lock()
		if _, own := s.own[rec.Run.RunID]; !own && s.left[rec.Run.RunID].IsZero() {
			s.left[rec.Run.RunID] = time.Now()
		}
		s.mu.Unlock()
	}
}

// reapLeft ends the left runs, the oldest first.
func (s *Store) reapLeft(ctx context.Context) {
	s.mu.Lock()
	left := maps.Clone(s.left)
	s.mu.Unlock()
	oldest := func(a, b string) int {
		return cmp.Or(left[a].Compare(left[b]), cmp.Compare(a, b))
	}
	for _, runID := range slices.SortedFunc(maps.Keys(left), oldest) {
		if s.reap(ctx, runID, time.Since(left[runID])) {
			s.forget(runID)
		}
	}
}

// reapTimeout bounds the end of one run.
const reapTimeout = 10 * time.Second

// reap ends a run without a delivery, unless it has an end. It reports whether that is done.
func (s *Store) reap(ctx context.Context, runID string, gone time.Duration) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	var ended *commitlog.Record
	err := s.steps.Log.Retry(ctx, func() error {
		ended = nil // the attempt before may have lost against the record that ended the run
		tail, err := s.steps.Log.Tail(ctx, runID, 0)
		if err != nil {
			return err
		}
		if done, err = s.over(ctx, &tail, runID); done || err != nil || tail.Closed &&
			gone < closingTime {
			return err
		}
		ended = tail.Waiting
		return s.End(ctx, &tail, machine.Cancellation{
			Code:   machine.CancelledLeft,
			Reason: "The server in which the handoff waited did not judge it.",
		})
	})
	if ended != nil {
		about := alerts.About{TownID: ended.TownID, RunID: runID, Trace: ended.Run.Trace}
		alert := alerts.LeftWaiting.About(about)
		if err != nil {
			alert = alerts.LeftUncancelled.About(about, "{error}", err.Error())
		}
		s.config.Alerts.RaiseOnce(alert)
	}
	if err != nil {
		s.warn(ctx, "a run that was left waiting cannot be ended yet", runID, err)
	}
	return err == nil && (done || ended != nil)
}

func (s *Store) warn(ctx context.Context, text string, of any, err error) {
	if ctx.Err() == nil && s.trouble.Ready() {
		s.config.Logger.Warn(text, "run", of, "error", err)
	}
}

// over reports whether a run need not be ended: it has an end, or its command is being applied.
func (s *Store) over(ctx context.Context, tail *commitlog.RunTail, runID string) (bool, error) {
	if tail.Waiting == nil || tail.Cancelled {
		return true, nil
	}
	current, err := s.steps.Log.Load(ctx, tail.Waiting.TownID)
	switch {
	case err != nil:
		return false, err
	case current.Pending != nil && current.Pending.Run.RunID == runID:
		return true, nil
	}
	if ended, err := s.config.Ends.HasEnded(ctx, runID); ended || err != nil || !tail.Closed {
		return ended, err
	}
	return s.forgotten(ctx, tail)
}

// forgotten reports whether the log may have discarded the end of a closed run: all messages that
// it keeps of the town, or of its refused runs, are behind the close, and more would be discarded.
func (s *Store) forgotten(ctx context.Context, tail *commitlog.RunTail) (bool, error) {
	token := wire.TownToken(tail.Waiting.TownID)
	for _, subject := range []string{
		wire.LogSubject(s.steps.Log.World, token), wire.RefusedSubject(s.steps.Log.World, token),
	} {
		oldest, err := s.steps.Log.Store.Next(ctx, subject, 1)
		if err != nil {
			return false, fmt.Errorf("%w: %w", commitlog.ErrLogUnavailable, err)
		}
		if oldest == nil || oldest.Sequence <= tail.Guard || s.steps.Log.Stream == nil {
			continue
		}
		kept, err := commitlog.SubjectsOf(ctx, s.steps.Log.Stream, subject)
		if err != nil || int64(kept[subject]) >= s.config.History {
			return err == nil, err
		}
	}
	return false, nil
}
