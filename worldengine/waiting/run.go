package waiting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/runs"
)

// Run is the run of one delivery of a handoff. One goroutine uses it at a time.
type Run struct {
	Identity runevents.Identity
	Handoff  *handoff.Handoff
	// Retry is the run that this one tries again; nil if there is none.
	Retry *lifecycle.Retry
	// Queued is when the delivery was queued.
	Queued time.Time
	// Producer emits the events of the run; nil before its first turn.
	Producer *runevents.Producer
	// Start is how the events that are still to come begin.
	Start lifecycle.Start
	// Closed reports whether the run was recorded and only the engine goes on with it.
	Closed bool

	// doubt is a step that may be stored, though the log gave no answer; nil if all is known.
	doubt *step
}

// step is the next events of a recorded run, and the begin of the events behind them.
type step struct {
	emit func() error
	next lifecycle.Start
}

// Wait says that the delivery has to wait for its town.
func (r *Run) Wait() {
	if r.Start == lifecycle.StartAtOnce && r.doubt == nil {
		r.Start = lifecycle.StartQueued
	}
}

// Begin returns how the events that are still to come begin.
func (r *Run) Begin() lifecycle.Begin {
	return lifecycle.Begin{Start: r.Start, Waited: r.Waited(), Retry: r.Retry}
}

// Next returns the runSeq of the next event.
func (r *Run) Next() int64 {
	if r.Producer == nil {
		return 1
	}
	return r.Producer.Run().FirstSeq
}

// Recorded reports whether the run has events of its own in the log.
func (r *Run) Recorded() bool {
	return r.Start == lifecycle.StartWaited || r.Start == lifecycle.StartResumed
}

// MayBeRecorded reports whether the run has events of its own in the log, or may have.
func (r *Run) MayBeRecorded() bool { return r.Recorded() || r.doubt != nil }

// Waited returns how long ago the delivery was queued.
func (r *Run) Waited() time.Duration { return time.Since(r.Queued) }

// townID returns the id of the town that the run waits for.
func (r *Run) townID() string { return r.Handoff.Proposal.TownID }

// emitted returns how many events the run has, also if their messages have expired.
func (r *Run) emitted() int64 { return r.Producer.Run().FirstSeq - 1 }

// Queue records that a run waits for its town, once.
func (s *Store) Queue(ctx context.Context, r *Run) error {
	if err := s.storeDoubtful(ctx, r); err != nil || r.Recorded() {
		return err
	}
	return s.record(ctx, r, &step{func() error {
		return lifecycle.EmitQueued(r.Producer, r.Handoff, r.Begin())
	}, lifecycle.StartWaited})
}

// Pause records that a run has started and waits for the end of a pause, once.
func (s *Store) Pause(ctx context.Context, r *Run, by *commitlog.PausedBy) error {
	if err := s.storeDoubtful(ctx, r); err != nil || r.Start == lifecycle.StartResumed {
		return err
	}
	return s.record(ctx, r, &step{func() error {
		return lifecycle.EmitPaused(r.Producer, r.Handoff, r.Begin(), by.SignalID, by.Reason)
	}, lifecycle.StartResumed})
}

// storeDoubtful stores the step again that a run is in doubt about. Events that are stored already are
// known by their keys.
func (s *Store) storeDoubtful(ctx context.Context, r *Run) error {
	if r.doubt == nil {
		return nil
	}
	return s.record(ctx, r, r.doubt)
}

// record stores the events of a step. If the log does not answer, the run is in doubt.
func (s *Store) record(ctx context.Context, r *Run, next *step) error {
	r.Producer.Restart()
	if err := next.emit(); err != nil {
		return fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	r.doubt = next
	s.hold(r.Identity.RunID)
	tail, err := s.runs.Extend(ctx, r.townID(), r.Producer.Run(), r.emitted(), false)
	if err != nil {
		return err
	}
	r.Producer.Persisted(tail.Next)
	r.Start, r.doubt = next.next, nil
	return nil
}

// Close closes a run that was recorded, so that its end follows what others have appended
// meanwhile. It returns runs.ErrRunCancelled if the run was cancelled before.
func (s *Store) Close(ctx context.Context, r *Run) error {
	if err := s.storeDoubtful(ctx, r); err != nil || !r.Recorded() || r.Closed {
		return err
	}
	run := runevents.Run{Identity: r.Identity}
	tail, err := s.runs.Extend(ctx, r.townID(), &run, r.emitted(), true)
	if err != nil {
		return err
	}
	r.Producer.Persisted(tail.Next)
	r.Closed = true
	return nil
}

// Reopen lets others go on with a run that was closed for a decision and has to wait again.
func (s *Store) Reopen(ctx context.Context, r *Run) {
	if r.Closed {
		s.runs.Reopen(ctx, r.townID(), r.Identity, r.emitted())
		r.Closed = false
	}
}

// Cancel ends a run that was recorded and is not going to be judged. If the end cannot be stored
// now, Reap stores it.
func (s *Store) Cancel(ctx context.Context, r *Run, why lifecycle.Cancellation) {
	if !r.MayBeRecorded() {
		s.Done(r)
		return
	}
	err := s.cancel(ctx, r, why)
	if err == nil || errors.Is(err, runs.ErrRunCancelled) {
		s.Done(r)
		return
	}
	s.Leave(r)
	s.config.Logger.Warn("a waiting run is left without an end; the server ends it later",
		"run", r.Identity.RunID, r.Identity.Trace.LogAttr(), "error", err)
}

func (s *Store) cancel(ctx context.Context, r *Run, why lifecycle.Cancellation) error {
	r.Producer.Restart()
	if r.doubt != nil {
		if err := r.doubt.emit(); err != nil {
			return err
		}
	}
	if err := lifecycle.EmitCancelled(r.Producer, r.Handoff, r.Retry, why); err != nil {
		return err
	}
	_, err := s.runs.Extend(ctx, r.townID(), r.Producer.Run(), r.emitted(), true)
	return err
}

// Waits reports whether the end of a run in the log is that of a run that waits.
func Waits(tail *commitlog.RunTail) bool {
	return tail.Waiting != nil && !tail.Closed && !tail.Cancelled
}

// End cancels a run that waits in any server, as the log has it at tail. That server answers the
// client. It returns commitlog.ErrLostRace where the run has gone on.
func (s *Store) End(
	ctx context.Context, tail *commitlog.RunTail, why lifecycle.Cancellation,
) error {
	rec := tail.Waiting
	p := s.config.NewProducer(rec.Run.Identity)
	if err := lifecycle.EmitCancelledFrom(p, tail.Status, rec.Run.Events[0].Payload,
		why); err != nil {
		return fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	p.Run().FirstSeq = tail.Next
	msg, err := s.runs.Message(&commitlog.Record{
		Kind: commitlog.KindRun, TownID: rec.TownID, Run: p.Run(), Closing: true,
	})
	if err != nil {
		return err
	}
	_, err = s.log.Commit(ctx, msg, tail.Guard)
	return err
}
