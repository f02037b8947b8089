package waiting

import (
	"context"
	"errors"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/machine"
)

// Run is the run of one delivery of a handoff. One goroutine uses it at a time.
type Run struct {
	Identity runevents.Identity
	Handoff  *handoff.Handoff
	// Retry is the run that this one tries again; nil if there is none.
	Retry *machine.Retry
	// Queued is when the delivery was queued.
	Queued time.Time
	// Closed reports whether the run was recorded and only the engine goes on with it.
	Closed bool

	waits bool // the delivery had to wait for its town
	// mayBeRecorded says that the log may have events of the run; tail is the run's end as this
	// writer last saw it.
	mayBeRecorded bool
	tail          machine.RunTail
}

// Wait marks that the delivery has to wait for its town.
func (r *Run) Wait() { r.waits = true }

// Begin returns how the remaining events begin.
func (r *Run) Begin() machine.Begin {
	// Whole milliseconds, as the time of the input, so that their difference is when it was queued.
	begin := machine.Begin{Waited: r.Waited().Truncate(time.Millisecond), Retry: r.Retry}
	switch {
	case r.tail.Status == runevents.RunIsPaused:
		begin.Start = machine.StartResumed
	case r.tail.Status != "":
		begin.Start = machine.StartWaited
	case r.waits:
		begin.Start = machine.StartQueued
	}
	return begin
}

// Next returns the runSeq of the next event.
func (r *Run) Next() int64 { return max(r.tail.Next, 1) }

// MayBeRecorded reports whether the run has events of its own in the log, or may have.
func (r *Run) MayBeRecorded() bool { return r.mayBeRecorded }

// Waited returns how long ago the delivery was queued.
func (r *Run) Waited() time.Duration { return time.Since(r.Queued) }

// Record records that a run waits for its town: for the end of a pause, or if by is nil, behind a
// command. It records each once. It returns machine.ErrRunCancelled if the run was cancelled.
func (s *Store) Record(ctx context.Context, r *Run, by *commitlog.PausedBy) error {
	if status := r.tail.Status; by == nil && status != "" || status == runevents.RunIsPaused {
		return nil
	}
	r.mayBeRecorded = true
	s.hold(r.Identity.RunID)
	return s.step(ctx, r, new(r.wait(by)))
}

func (r *Run) wait(by *commitlog.PausedBy) machine.Wait {
	return machine.Wait{Handoff: r.Handoff, Run: r.Identity, Begin: r.Begin(), By: by}
}

// Close closes a recorded run, so that its end follows all that others have appended. It returns
// machine.ErrRunCancelled if the run was cancelled before.
func (s *Store) Close(ctx context.Context, r *Run) error {
	if !r.mayBeRecorded || r.Closed {
		return nil
	}
	err := s.step(ctx, r, &machine.Close{Wait: r.wait(nil)})
	r.Closed = err == nil
	return err
}

// Reopen lets others continue a closed run whose end is not near after all. emitted is the number
// of its events in an accepted handoff's record. A run that stays closed for too long loses
// nothing, so an error is only logged.
func (s *Store) Reopen(ctx context.Context, r *Run, emitted int64) {
	if !r.Closed {
		return
	}
	r.Closed = false
	in := s.steps.Input(r.Handoff.Proposal.TownID, nil, &machine.Open{Run: r.Identity})
	_, err := s.steps.OfRun(ctx, machine.Town{}, in, r.Identity.RunID, emitted)
	if err != nil {
		s.config.Logger.Warn("a run takes no events of others until its end",
			"run", r.Identity.RunID, r.Identity.Trace.LogAttr(), "error", err)
	}
}

// step steps a run that waits.
func (s *Store) step(ctx context.Context, r *Run, event machine.Event) error {
	return s.steps.Log.Retry(ctx, func() error {
		in := s.steps.Input(r.Handoff.Proposal.TownID, nil, event)
		_, err := s.steps.OfRun(ctx, machine.Town{}, in, r.Identity.RunID, 0)
		if in.Tail != nil {
			r.tail = *in.Tail
		}
		return err
	})
}

// Cancel ends a recorded run that is not going to be judged. If the end cannot be stored now, Reap
// stores it.
func (s *Store) Cancel(ctx context.Context, r *Run, why machine.Cancellation) {
	var err error
	if r.mayBeRecorded {
		err = s.step(ctx, r, &machine.Abandon{
			Run: r.Identity, Handoff: r.Handoff, Retry: r.Retry, Why: why,
		})
	}
	if err == nil || errors.Is(err, machine.ErrRunCancelled) {
		s.Done(r)
		return
	}
	s.Leave(r)
	s.config.Logger.Warn("a waiting run is left without an end; the server ends it later",
		"run", r.Identity.RunID, r.Identity.Trace.LogAttr(), "error", err)
}

// Waits reports whether a run with this end in the log waits.
func Waits(tail *commitlog.RunTail) bool {
	return tail.Waiting != nil && !tail.Closed && !tail.Cancelled
}

// End cancels a run that waits in any server and ends in the log at tail. That server answers the
// client. It returns commitlog.ErrLostRace if the run has gone on.
func (s *Store) End(
	ctx context.Context, tail *commitlog.RunTail, why machine.Cancellation,
) error {
	rec := tail.Waiting
	in := s.steps.Input(rec.TownID, nil, &machine.Abandon{Run: rec.Run.Identity, Why: why})
	in.Tail = tail
	_, err := s.steps.Step(ctx, machine.Town{}, in)
	return err
}
