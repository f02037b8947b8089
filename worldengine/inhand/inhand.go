// Package inhand records the runs of commands that are being applied outside the engine: the
// attempts, the pauses of the town or the world meanwhile, and the end.
//
// The run of such a command is PAUSED while its town, or the world, is. Its RunPaused and
// RunResumed stand on the run's own subject. The end of the run decides which of them is due, and
// guards it, so that each is there once (docs/adr/0022-a-run-in-hand-is-paused.md).
package inhand

import (
	"context"
	"fmt"
	"slices"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/town"
)

// Store records runs. Every member must be set. It is safe for concurrent use.
type Store struct {
	Runs *runs.Store
	// NewProducer returns a producer of the events of a run.
	NewProducer func(runevents.Identity) *runevents.Producer
}

// Run is the run of a pending handoff of a town, whose state was before when it was accepted.
type Run struct {
	apply.Decoded
	TownID string
	Before town.State
}

// RecordAttempts stores that the attempts before the present one have failed, and that this one has
// started if it has. Doing it again is harmless.
func (s *Store) RecordAttempts(ctx context.Context, r *Run, started bool) error {
	p, err := s.attempts(r, started)
	if err != nil || len(p.Run().Events) == 0 {
		return err
	}
	_, err = s.extend(ctx, r, p.Run(), false)
	return err
}

// End returns the events that end a run, for the record of its result. No other producer goes on
// with the run from then on.
func (s *Store) End(
	ctx context.Context, r *Run, result *handoff.Result, failed *apply.Failure, v *apply.Result,
) (*runevents.Run, error) {
	p, err := s.attempts(r, true)
	if err != nil {
		return nil, err
	}
	tail, err := s.extend(ctx, r, p.Run(), true)
	if err != nil {
		return nil, err
	}
	p.Persisted(tail.Next)
	if tail.PausedAt > r.Pending.Emitted {
		// A cancellation has closed the run in its pause, and its record has not come: where it
		// comes first the run was not resumed, so this stands in the record that ends it.
		p.ResumeAt(runevents.RunIsPaused)
		if err := lifecycle.EmitReleased(p, tail.Pauses, outcomeKnown); err != nil {
			return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
		}
	}
	if err := lifecycle.EmitEnd(p, result, r.Pending.Attempt, failed, v); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return lacking(p.Run(), &tail), nil
}

// lacking returns a run with only the events that its end lacks.
func lacking(run *runevents.Run, tail *commitlog.RunTail) *runevents.Run {
	left := *run
	left.Events = tail.Without(run)
	return &left
}

// Cancel returns the events that end a run whose command is not asked for any more, for the record
// of that. As with End, no other producer goes on with the run from then on.
func (s *Store) Cancel(
	ctx context.Context, r *Run, why lifecycle.Cancellation,
) (*runevents.Run, error) {
	p, err := s.attempts(r, true)
	if err != nil {
		return nil, err
	}
	tail, err := s.Runs.ExtendBy(ctx, r.TownID, p.Run().Identity, r.Pending.Emitted, true,
		func(tail *commitlog.RunTail) ([]runevents.Event, error) {
			return s.unheld(r.Pending, p.Run(), tail, false) // a paused run can be cancelled
		})
	if err != nil {
		return nil, err
	}
	p.Persisted(tail.Next)
	if err := lifecycle.EmitCancelledInHand(p, r.Pending.Attempt, why); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return lacking(p.Run(), &tail), nil
}

// Hold has the run of what is pending in a town paused by a pause, or going on where by is nil.
// What says so may have been read a while ago, and the pause have ended since: where that is to
// change the run, reread reads it again, behind the end of the run.
func (s *Store) Hold(
	ctx context.Context, townID string, pending *apply.Pending, by *commitlog.PausedBy,
	reread func() (*commitlog.PausedBy, error),
) error {
	p := s.NewProducer(pending.Run)
	_, err := s.Runs.ExtendBy(ctx, townID, pending.Run, pending.Emitted, false,
		func(tail *commitlog.RunTail) ([]runevents.Event, error) {
			paused := tail.PausedAt > pending.Emitted
			if tail.Closed || paused == (by != nil) {
				return nil, nil
			}
			by, err := reread()
			if err != nil || paused == (by != nil) {
				return nil, err
			}
			p.Restart()
			if paused {
				return released(p, tail, "")
			}
			p.ResumeAt(runevents.RunRunning)
			err = lifecycle.EmitHeld(p, tail.Pauses+1, by.SignalID, by.Reason)
			return p.Run().Events, err
		})
	return err
}

// attempts returns a producer that goes on where the first commit of a run ended: see
// lifecycle.EmitResumed.
func (s *Store) attempts(r *Run, started bool) (*runevents.Producer, error) {
	p := s.NewProducer(r.Pending.Run)
	evaluation := machine.Check(r.Handoff, nil, r.Before).Outcome.Evaluation
	if err := lifecycle.EmitResumed(p, r.Handoff, &evaluation, r.Pending, started); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a run: %w", err)
	}
	return p, nil
}

// extend stores the events of a run that its end lacks; with ends its end is to follow them.
func (s *Store) extend(
	ctx context.Context, r *Run, run *runevents.Run, ends bool,
) (commitlog.RunTail, error) {
	return s.Runs.ExtendBy(ctx, r.TownID, run.Identity, r.Pending.Emitted, ends,
		func(tail *commitlog.RunTail) ([]runevents.Event, error) {
			return s.unheld(r.Pending, run, tail, ends)
		})
}

// outcomeKnown is why a paused run goes on when its command has an outcome.
const outcomeKnown = "What became of the command is known: the run ends."

// unheld returns the events of a run that its end lacks. Where the run is paused and one of them,
// or with ends what is to follow them, cannot be in a pause, it is resumed before: an attempt
// starts when its pause is over, and a command whose outcome comes in a pause is concluded
// (Execution Semantics v1, section 6, option A). Where a cancellation has closed the run in its
// pause already, nothing is stored behind that: see End.
func (s *Store) unheld(
	pending *apply.Pending, run *runevents.Run, tail *commitlog.RunTail, ends bool,
) ([]runevents.Event, error) {
	fresh, reason := tail.Without(run), ""
	starts := func(event runevents.Event) bool { return event.EventType == runevents.StepStarted }
	if tail.PausedAt <= pending.Emitted || !ends && !slices.ContainsFunc(fresh, starts) {
		return fresh, nil
	}
	if ends {
		if tail.Closed {
			return fresh, nil
		}
		reason = outcomeKnown
	}
	resumed, err := released(s.NewProducer(run.Identity), tail, reason)
	return append(resumed, fresh...), err
}

// released returns the event by which a paused run goes on.
func released(
	p *runevents.Producer, tail *commitlog.RunTail, reason string,
) ([]runevents.Event, error) {
	p.ResumeAt(runevents.RunIsPaused)
	err := lifecycle.EmitReleased(p, tail.Pauses, reason)
	return p.Run().Events, err
}
