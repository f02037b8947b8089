package worldengine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/waiting"
	"worldengine/worldengine/wire"
)

// Signal is an operator's word.
type Signal struct {
	Kind lifecycle.SignalKind
	// TownID is the town that is paused or resumed; "" for the whole world.
	TownID string
	// RunID is the run that is cancelled.
	RunID string
	// ActorID names the operator, Reason is the operator's; both stand in the events. "operator" and "".
	ActorID, Reason string
	// DrainTimeout is how long a pause waits for the commands that are being applied before it raises
	// PAUSE_DRAIN_TIMEOUT; 5 minutes.
	DrainTimeout time.Duration
}

// DefaultDrainTimeout is that of ExecutionSemantics v1, section 6.
const DefaultDrainTimeout = 5 * time.Minute

// Control reports whether a town, or the world, is paused.
type Control struct {
	// TownID is "" for the world.
	TownID string
	// Paused says that no handoff is judged, by its own pause or the world's.
	Paused bool
	// Draining says that a command is still being applied, and Applying how many are.
	Draining bool
	Applying int
	// By is the pause; nil where there is none.
	By *commitlog.PausedBy
	// SignalID is the run of the signal that this answers, "" where none does.
	SignalID string
}

// SignalError refuses a signal. The refusal is recorded: SignalID is its run.
type SignalError struct {
	Code     wire.Code // ALREADY_PAUSED, NOT_PAUSED, RUN_NOT_WAITING or UNKNOWN_TOWN
	SignalID string
	Message  string
}

// Error returns the reason.
func (e *SignalError) Error() string { return "worldengine: " + e.Message }

// Signal takes an operator's signal. Each is a run of its own, whose events say whether it was accepted
// (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a town is a commit to its
// history, so it holds for all instances at once; one of the world reaches the others within moments.
func (e *Engine) Signal(ctx context.Context, s Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s.ActorID = cmp.Or(s.ActorID, "operator")
	s.DrainTimeout = cmp.Or(s.DrainTimeout, DefaultDrainTimeout)
	switch {
	case s.Kind == lifecycle.SignalCancel:
		return e.cancelRun(ctx, &s)
	case s.TownID == "":
		return e.signalWorld(ctx, &s)
	}
	return e.signalTown(ctx, &s)
}

// Reject records that a signal is refused which never came to be looked at, with the code of the refusal.
func (e *Engine) Reject(ctx context.Context, s Signal, code wire.Code) error {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s.ActorID = cmp.Or(s.ActorID, "operator")
	err := e.rejectSignal(ctx, &s, code, "")
	if _, recorded := errors.AsType[*SignalError](err); recorded {
		return nil
	}
	return err
}

// pausedBy returns what a pause leaves behind, and nil for a resumption.
func (s *Signal) pausedBy(signalID string, now time.Time) *commitlog.PausedBy {
	if s.Kind == lifecycle.SignalResume {
		return nil
	}
	return &commitlog.PausedBy{
		SignalID: signalID, ActorID: s.ActorID, Reason: s.Reason, At: now.UTC(),
		DrainTimeoutMs: s.DrainTimeout.Milliseconds(),
	}
}

// refusal returns the code and the reason why a signal is refused while paused holds, or "".
func (s *Signal) refusal(paused *commitlog.PausedBy) (code wire.Code, message string) {
	switch {
	case s.Kind == lifecycle.SignalPause && paused != nil:
		return wire.CodeAlreadyPaused, "it is paused already, by " + paused.ActorID
	case s.Kind == lifecycle.SignalResume && paused == nil:
		return wire.CodeNotPaused, "it is not paused"
	}
	return "", ""
}

// signalTown pauses or resumes a town, whatever is pending there.
func (e *Engine) signalTown(ctx context.Context, s *Signal) (c Control, err error) {
	var after commitlog.Entry
	err = e.log.Retry(ctx, func() error {
		current, err := e.log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		if current.Seq == 0 {
			return e.rejectSignal(ctx, s, wire.CodeUnknownTown, "there is no such town")
		}
		if code, message := s.refusal(current.Paused); code != "" {
			return e.rejectSignal(ctx, s, code, message)
		}
		run, err := e.signalRun(s, "")
		if err != nil {
			return err
		}
		after = current
		after.Paused = s.pausedBy(run.RunID, time.Now())
		rec := commitlog.Record{Kind: commitlog.KindControl, TownID: s.TownID, Run: run}
		msg, err := rec.Message(wire.LogSubject(e.config.World, wire.TownToken(s.TownID)), &after)
		if err != nil {
			return err
		}
		if after.Paused != nil {
			_ = e.indexPending(ctx, s.TownID) // for the count of paused towns, which a pause does not wait for
		}
		_, err = e.log.Commit(ctx, msg, current.Seq)
		e.towns.Forget(s.TownID)
		if err != nil {
			return err
		}
		e.queue.Unpark(s.TownID)
		c = e.controlOf(s.TownID, after, run.RunID)
		return nil
	})
	if err == nil && after.Pending != nil {
		e.holdRun(ctx, s.TownID, after) // at once, so that the next reader sees it; watchHeld does it again
	}
	return c, err
}

// signalWorld pauses or resumes the world.
func (e *Engine) signalWorld(ctx context.Context, s *Signal) (c Control, err error) {
	err = e.log.Retry(ctx, func() error {
		guard, paused, err := e.log.WorldPause(ctx)
		if err != nil {
			return err
		}
		if code, message := s.refusal(paused); code != "" {
			return e.rejectSignal(ctx, s, code, message)
		}
		run, err := e.signalRun(s, "")
		if err != nil {
			return err
		}
		rec := commitlog.Record{Kind: commitlog.KindControl, Run: run, Paused: s.pausedBy(run.RunID, time.Now())}
		msg, err := rec.Message(wire.ControlSubject(e.config.World), nil)
		if err != nil {
			return err
		}
		seq, err := e.log.Commit(ctx, msg, guard)
		if err != nil {
			return err
		}
		e.setWorldPause(seq, rec.Paused)
		c = e.controlOfWorld(rec.Paused, run.RunID)
		return nil
	})
	return c, err
}

// cancelRun ends a run that waits for the end of a pause, or behind a command. The instance that has the
// handoff answers its client.
func (e *Engine) cancelRun(ctx context.Context, s *Signal) (c Control, err error) {
	err = e.log.Retry(ctx, func() error {
		tail, err := e.log.Tail(ctx, s.RunID, 0)
		if err != nil {
			return err
		}
		if !waiting.Waits(&tail) {
			return e.rejectSignal(ctx, s, wire.CodeRunNotWaiting, "the run is not one that waits")
		}
		s.TownID = tail.Waiting.TownID
		// Behind the tail: what was judged before is pending there, or closed.
		current, err := e.log.Load(ctx, s.TownID)
		if err != nil {
			return err
		}
		if current.Pending != nil && current.Pending.Run.RunID == s.RunID {
			return e.rejectSignal(ctx, s, wire.CodeRunNotWaiting, "the command of the run is being applied")
		}
		signal, err := e.signalRun(s, "")
		if err != nil {
			return err
		}
		why := lifecycle.Cancellation{SignalID: signal.RunID, Reason: s.Reason}
		if err := e.waiting.End(ctx, &tail, why); err != nil {
			return err
		}
		e.cancelled.Add(s.RunID, struct{}{})
		e.queue.Unpark(s.TownID)
		c = Control{TownID: s.TownID, SignalID: signal.RunID}
		return e.recordSignal(ctx, s.TownID, signal)
	})
	return c, err
}

// rejectSignal records that a signal was refused, and returns the refusal.
func (e *Engine) rejectSignal(ctx context.Context, s *Signal, code wire.Code, message string) error {
	run, err := e.signalRun(s, string(code))
	if err != nil {
		return err
	}
	if err := e.recordSignal(ctx, s.TownID, run); err != nil {
		return err
	}
	return &SignalError{Code: code, SignalID: run.RunID, Message: message}
}

// recordSignal stores the run of a signal that changes no state.
func (e *Engine) recordSignal(ctx context.Context, townID string, run *runevents.Run) error {
	rec := commitlog.Record{Kind: commitlog.KindSignal, TownID: townID, Run: run}
	msg, err := rec.Message(wire.SignalSubject(e.config.World), nil)
	if err != nil {
		return err
	}
	return e.log.Refuse(ctx, msg, townID, nil)
}

// signalRun returns the run of a signal; refused is "" for one that is accepted.
func (e *Engine) signalRun(s *Signal, refused string) (*runevents.Run, error) {
	run, err := e.newRun("signal", lifecycle.SignalVersion)
	if err != nil {
		return nil, err
	}
	p := e.newProducer(run)
	said := lifecycle.SignalPayload{
		Signal: s.Kind, TownID: s.TownID, RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason,
	}
	if err := lifecycle.EmitSignal(p, said, refused); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a signal: %w", err)
	}
	return p.Run(), nil
}

// Control returns whether a town, or with "" the world, is paused.
func (e *Engine) Control(ctx context.Context, townID string) (Control, error) {
	if townID == "" {
		_, paused, err := e.log.WorldPause(ctx)
		if err != nil {
			return Control{}, err
		}
		return e.controlOfWorld(paused, ""), nil
	}
	current, err := e.log.Load(ctx, townID)
	if err != nil {
		return Control{}, err
	}
	if current.Seq == 0 {
		return Control{}, ErrUnknownTown
	}
	return e.controlOf(townID, current, ""), nil
}

func (e *Engine) controlOf(townID string, current commitlog.Entry, signalID string) Control {
	c := Control{TownID: townID, By: e.pauseOf(current), SignalID: signalID}
	c.Paused = c.By != nil
	if current.Pending != nil {
		c.Applying = 1
	}
	c.Draining = c.Paused && c.Applying > 0 && c.By.Draining(time.Now())
	return c
}

func (e *Engine) controlOfWorld(by *commitlog.PausedBy, signalID string) Control {
	c := Control{By: by, Applying: e.applications.count(), SignalID: signalID}
	c.Paused = c.By != nil
	c.Draining = c.Paused && c.Applying > 0 && c.By.Draining(time.Now())
	return c
}

// pauseOf returns what keeps a town's handoffs from being judged, or nil.
func (e *Engine) pauseOf(current commitlog.Entry) *commitlog.PausedBy {
	if current.Paused != nil {
		return current.Paused
	}
	return e.worldPause.Load().by
}
