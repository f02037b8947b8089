package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
)

// SignalKind is what an operator tells the engine (ExecutionSemantics v1, section 1.2).
type SignalKind string

// The signals.
const (
	// SignalPause: no handoff of the town, or of the world, is judged until SignalResume. What waits is
	// told of by RunPaused; a command that is being applied is not interrupted.
	SignalPause SignalKind = "PAUSE"
	// SignalResume ends a pause.
	SignalResume SignalKind = "RESUME"
	// SignalCancel ends the run of a handoff that waits for the end of a pause.
	SignalCancel SignalKind = "CANCEL"
)

// Signal is an operator's word.
type Signal struct {
	Kind SignalKind
	// TownID is the town that is paused or resumed; "" for the whole world.
	TownID string
	// RunID is the run that is cancelled.
	RunID string
	// ActorID says who gave it, and Reason why; both stand in the events. "operator" and "".
	ActorID, Reason string
	// DrainTimeout is how long a pause waits for the commands that are being applied before it raises
	// PAUSE_DRAIN_TIMEOUT; 5 minutes.
	DrainTimeout time.Duration
}

// DefaultDrainTimeout is that of ExecutionSemantics v1, section 6.
const DefaultDrainTimeout = 5 * time.Minute

// Control says whether a town, or the world, is paused.
type Control struct {
	// TownID is "" for the world.
	TownID string
	// Paused says that no handoff is judged, by its own pause or the world's.
	Paused bool
	// Draining says that a command is still being applied, and Applying how many are.
	Draining bool
	Applying int
	// By is what paused it; nil where nothing did.
	By *PausedBy
	// SignalID is the run of the signal that this answers, "" where none does.
	SignalID string
}

// PausedBy says that an operator has paused a town, or the world.
type PausedBy struct {
	SignalID       string    `json:"signalId"` // the run of the signal
	ActorID        string    `json:"actorId"`
	Reason         string    `json:"reason,omitzero"`
	At             time.Time `json:"at"`
	DrainTimeoutMs int64     `json:"drainTimeoutMs"`
}

// draining says whether commands that are being applied are still waited for.
func (p *PausedBy) draining(now time.Time) bool {
	return now.Before(p.At.Add(time.Duration(p.DrainTimeoutMs) * time.Millisecond))
}

// SignalError refuses a signal. The refusal is recorded: SignalID is its run.
type SignalError struct {
	Code     string // e.g. NOT_PAUSED
	SignalID string
	Message  string
}

func (e *SignalError) Error() string { return "worldengine: " + e.Message }

// Signal takes an operator's signal. Each is a run of its own, whose events say whether it was accepted
// (SignalAccepted) or rejected (SignalRejected). A pause or resumption of a town is a commit to its
// history, so it holds for all instances at once; one of the world reaches the others within moments.
func (e *Engine) Signal(ctx context.Context, s Signal) (Control, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	s.ActorID = orDefault(s.ActorID, "operator")
	s.DrainTimeout = orDefault(s.DrainTimeout, DefaultDrainTimeout)
	switch {
	case s.Kind == SignalCancel:
		return e.cancelRun(ctx, &s)
	case s.TownID == "":
		return e.signalWorld(ctx, &s)
	}
	return e.signalTown(ctx, &s)
}

// pausedBy returns what a pause leaves behind, and nil for a resumption.
func (s *Signal) pausedBy(signalID string, now time.Time) *PausedBy {
	if s.Kind == SignalResume {
		return nil
	}
	return &PausedBy{
		SignalID: signalID, ActorID: s.ActorID, Reason: s.Reason, At: now.UTC(),
		DrainTimeoutMs: s.DrainTimeout.Milliseconds(),
	}
}

// refusal says why a signal makes no sense where paused is what holds, or "".
func (s *Signal) refusal(paused *PausedBy) (code, message string) {
	switch {
	case s.Kind == SignalPause && paused != nil:
		return "ALREADY_PAUSED", "it is paused already, by " + paused.ActorID
	case s.Kind == SignalResume && paused == nil:
		return "NOT_PAUSED", "it is not paused"
	}
	return "", ""
}

// signalTown pauses or resumes a town, whatever is pending there.
func (e *Engine) signalTown(ctx context.Context, s *Signal) (Control, error) {
	for race := range maxRaces {
		e.yield(ctx, race)
		current, err := e.log.load(ctx, s.TownID)
		if err != nil {
			return Control{}, err
		}
		if current.seq == 0 {
			return Control{}, ErrUnknownTown
		}
		if code, message := s.refusal(current.paused); code != "" {
			return Control{}, e.rejectSignal(ctx, s, code, message)
		}
		run, err := e.acceptedSignal(s)
		if err != nil {
			return Control{}, err
		}
		after := current
		after.paused = s.pausedBy(run.RunID, time.Now())
		rec := record{Kind: kindControl, TownID: s.TownID, Run: run}
		msg, err := rec.message(logSubject(e.config.World, TownToken(s.TownID)), &after)
		if err != nil {
			return Control{}, err
		}
		_, err = e.log.commit(ctx, msg, current.seq)
		e.towns.forget(s.TownID)
		if errors.Is(err, errLostRace) {
			continue
		}
		if err != nil {
			return Control{}, err
		}
		e.queues.wake(s.TownID)
		e.watchDrain(s, after.paused)
		return e.controlOf(s.TownID, after, run.RunID), nil
	}
	return Control{}, ErrContended
}

// signalWorld pauses or resumes the world.
func (e *Engine) signalWorld(ctx context.Context, s *Signal) (Control, error) {
	for race := range maxRaces {
		e.yield(ctx, race)
		guard, paused, err := e.log.worldPause(ctx)
		if err != nil {
			return Control{}, err
		}
		if code, message := s.refusal(paused); code != "" {
			return Control{}, e.rejectSignal(ctx, s, code, message)
		}
		run, err := e.acceptedSignal(s)
		if err != nil {
			return Control{}, err
		}
		rec := record{Kind: kindControl, Run: run, Paused: s.pausedBy(run.RunID, time.Now())}
		msg, err := rec.message(controlSubject(e.config.World), nil)
		if err != nil {
			return Control{}, err
		}
		seq, err := e.log.commit(ctx, msg, guard)
		if errors.Is(err, errLostRace) {
			continue
		}
		if err != nil {
			return Control{}, err
		}
		e.setWorldPause(seq, rec.Paused)
		e.watchDrain(s, rec.Paused)
		return e.controlOfWorld(rec.Paused, run.RunID), nil
	}
	return Control{}, ErrContended
}

// cancelRun ends a run that waits for the end of a pause. Whoever has the handoff answers its client.
func (e *Engine) cancelRun(ctx context.Context, s *Signal) (Control, error) {
	for race := range maxRaces {
		e.yield(ctx, race)
		tail, err := e.log.tail(ctx, s.RunID, 0)
		if err != nil {
			return Control{}, err
		}
		if tail.paused == nil || tail.closed || tail.cancelled {
			return Control{}, e.rejectSignal(ctx, s, "RUN_NOT_WAITING", "the run is not one that waits for the end of a pause")
		}
		s.TownID = tail.paused.TownID
		signal, err := e.acceptedSignal(s)
		if err != nil {
			return Control{}, err
		}
		p := e.newProducer(tail.paused.Run.Identity)
		if err := cancelled(p, signal.RunID, s.Reason); err != nil {
			return Control{}, err
		}
		p.Run().FirstSeq = tail.next
		msg, err := e.runMessage(&record{Kind: kindRun, TownID: s.TownID, Run: p.Run(), Closing: true})
		if err != nil {
			return Control{}, err
		}
		_, err = e.log.commit(ctx, msg, tail.guard)
		if errors.Is(err, errLostRace) {
			continue
		}
		if err != nil {
			return Control{}, err
		}
		e.cancelled.add(s.RunID)
		e.queues.wake(s.TownID)
		return Control{TownID: s.TownID, SignalID: signal.RunID}, e.recordSignal(ctx, s.TownID, signal)
	}
	return Control{}, ErrContended
}

// rejectSignal records that a signal was refused, and returns the refusal.
func (e *Engine) rejectSignal(ctx context.Context, s *Signal, code, message string) error {
	run, err := e.signalRun(s, code)
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
	rec := record{Kind: kindSignal, TownID: townID, Run: run}
	msg, err := rec.message(signalSubject(e.config.World), nil)
	if err != nil {
		return err
	}
	return e.log.refuse(ctx, msg, townID, nil)
}

// acceptedSignal returns the run of a signal that is accepted.
func (e *Engine) acceptedSignal(s *Signal) (*runevents.Run, error) { return e.signalRun(s, "") }

// signalRun returns the run of a signal; refused is "" for one that is accepted.
func (e *Engine) signalRun(s *Signal, refused string) (*runevents.Run, error) {
	run, err := e.newRun("signal", signalVersion)
	if err != nil {
		return nil, err
	}
	p := e.newProducer(run)
	if err := narrateSignal(p, s, refused); err != nil {
		return nil, fmt.Errorf("worldengine: the events of a signal: %w", err)
	}
	return p.Run(), nil
}

// worldPause reads whether the world is paused, and the log sequence of the message that says so.
func (l *commitLog) worldPause(ctx context.Context) (uint64, *PausedBy, error) {
	msg, err := l.store.last(ctx, controlSubject(l.world))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: the pause of the world: %w", ErrLogUnavailable, err)
	}
	if msg == nil {
		return 0, nil, nil
	}
	rec, err := readRecord(msg.Data)
	if err != nil {
		return 0, nil, fmt.Errorf("log sequence %d: %w", msg.Sequence, err)
	}
	return msg.Sequence, rec.Paused, nil
}

// Control returns whether a town, or with "" the world, is paused.
func (e *Engine) Control(ctx context.Context, townID string) (Control, error) {
	if townID == "" {
		_, paused, err := e.log.worldPause(ctx)
		if err != nil {
			return Control{}, err
		}
		return e.controlOfWorld(paused, ""), nil
	}
	current, err := e.log.load(ctx, townID)
	if err != nil {
		return Control{}, err
	}
	if current.seq == 0 {
		return Control{}, ErrUnknownTown
	}
	return e.controlOf(townID, current, ""), nil
}

func (e *Engine) controlOf(townID string, current entry, signalID string) Control {
	c := Control{TownID: townID, By: e.pauseOf(current), SignalID: signalID}
	c.Paused = c.By != nil
	if current.pending != nil {
		c.Applying = 1
	}
	c.Draining = c.Paused && c.Applying > 0 && c.By.draining(time.Now())
	return c
}

func (e *Engine) controlOfWorld(by *PausedBy, signalID string) Control {
	c := Control{By: by, Applying: e.applyings.count(), SignalID: signalID}
	c.Paused = c.By != nil
	c.Draining = c.Paused && c.Applying > 0 && c.By.draining(time.Now())
	return c
}

// pauseOf returns what keeps a town's handoffs from being judged, or nil.
func (e *Engine) pauseOf(current entry) *PausedBy {
	if current.paused != nil {
		return current.paused
	}
	return e.worldPause.Load().by
}
