package machine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// SignalKind is the kind of an operator's signal (ExecutionSemantics v1, section 1.2). The set is
// closed.
type SignalKind string

const (
	// SignalPause: no handoff of the town, or of the world, is judged until SignalResume. Waiting
	// runs get RunPaused; a command that is being applied is not interrupted.
	SignalPause SignalKind = "PAUSE"
	// SignalResume ends a pause.
	SignalResume SignalKind = "RESUME"
	// SignalCancel ends the run of a handoff that waits, or a run whose command no game has.
	SignalCancel SignalKind = "CANCEL"
	// SignalApprove executes a handoff that waits for a person's approval; SignalDeny refuses it.
	SignalApprove SignalKind = "APPROVE"
	SignalDeny    SignalKind = "DENY"
	// SignalRetry judges a run's handoff again, in another run, if no game can have its command.
	SignalRetry SignalKind = "RETRY_STEP"
)

// Signals returns all signals.
func Signals() []SignalKind {
	return []SignalKind{
		SignalPause, SignalResume, SignalCancel, SignalRetry, SignalApprove, SignalDeny,
	}
}

// SignalIn returns the payload of SignalAccepted or SignalRejected in a run.
func SignalIn(run *runlog.Run) (said SignalPayload, err error) {
	if run != nil {
		for i := range run.Events {
			switch run.Events[i].EventType {
			case runevents.SignalAccepted, runevents.SignalRejected:
				return said, json.Unmarshal(run.Events[i].Payload, &said)
			}
		}
	}
	return said, errors.New("the run has no signal")
}

// Signal is an operator's signal. Each is a run of its own, whose events have the decision.
type Signal struct {
	Kind SignalKind
	// Run is the run of the signal.
	Run runevents.Identity
	// TownID is the town that is paused or resumed; "" for the whole world.
	TownID string
	// RunID is the run to cancel or to retry. Force cancels a run even if a game may have its
	// command.
	RunID string
	Force bool
	// HandoffID is the handoff that is approved or denied, and HandoffHash the SHA-256 of the bytes
	// that the person was shown, "" if unknown.
	HandoffID, HandoffHash string
	// ActorID names the operator in the events, by default "operator"; Reason is the operator's.
	ActorID, Reason string
	// DrainTimeout is how long a pause waits for commands that are being applied before it raises
	// PAUSE_DRAIN_TIMEOUT; by default 5 minutes.
	DrainTimeout time.Duration
}

// DefaultDrainTimeout is the timeout of ExecutionSemantics v1, section 6.
const DefaultDrainTimeout = 5 * time.Minute

// WithDefaults returns the signal with the default of each member that is not given.
func (s Signal) WithDefaults() Signal {
	s.ActorID = cmp.Or(s.ActorID, "operator")
	s.DrainTimeout = cmp.Or(s.DrainTimeout, DefaultDrainTimeout)
	return s
}

// Payload returns the payload of the events of the signal's run.
func (s *Signal) Payload() SignalPayload {
	return SignalPayload{
		Signal: s.Kind, TownID: s.TownID, RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason,
		HandoffID: s.HandoffID, HandoffHash: s.HandoffHash,
	}
}

func (*Signal) MaxIDs() int { return maxRunIDs }

func (*Signal) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *Signal) effect(s *step) (Output, error) {
	switch e.Kind {
	case SignalPause, SignalResume:
		return s.pause(e)
	case SignalApprove, SignalDeny:
		return s.decideApproval(e)
	}
	return Output{}, fmt.Errorf("machine: a town takes no signal %s", e.Kind)
}

func (s *step) pause(e *Signal) (Output, error) {
	pause := e.Kind == SignalPause
	switch {
	case e.TownID != "" && !s.town.State.Exists():
		return s.refuseSignal(e, &approval.SignalRefusal{Code: wire.CodeUnknownTown,
			Message: fmt.Sprintf("there is no town %q", e.TownID)})
	case pause && s.town.Paused != nil:
		return s.refuseSignal(e, &approval.SignalRefusal{Code: wire.CodeAlreadyPaused,
			Message: "it is paused already, by " + s.town.Paused.ActorID})
	case !pause && s.town.Paused == nil:
		return s.refuseSignal(e,
			&approval.SignalRefusal{Code: wire.CodeNotPaused, Message: "it is not paused"})
	}
	after, purpose := s.town, PurposeResume
	after.Paused = nil
	if pause {
		purpose = PurposePause
		after.Paused = &messages.PausedBy{
			SignalID: e.Run.RunID, ActorID: e.ActorID, Reason: e.Reason, At: s.in.At.UTC(),
			DrainTimeoutMs: e.DrainTimeout.Milliseconds(),
		}
	}
	out, err := s.signalled(e, KindPause, purpose, after)
	if e.TownID == "" {
		out.Record.Paused = after.Paused
	}
	return out, err
}

// decideApproval handles a person's decision about a handoff that waits for approval.
func (s *step) decideApproval(e *Signal) (Output, error) {
	list, decided, refused := s.town.Approvals.Decide(
		approval.HandoffRef{HandoffID: e.HandoffID, HandoffHash: e.HandoffHash}, s.town.State.Hash,
		approval.Decision{
			Approved: e.Kind == SignalApprove, SignalID: e.Run.RunID, ActorID: e.ActorID,
			Reason: e.Reason, At: s.in.At.UTC(),
		}, s.ApprovalTimeout)
	switch {
	case refused != nil:
		return s.refuseSignal(e, refused)
	case decided.Decision.SignalID != e.Run.RunID:
		return Output{DecidedApproval: &decided}, nil // the same person made the same decision before
	}
	about := *e // the record has the hash even if the signal lacks it
	about.HandoffHash = decided.HandoffHash
	after := s.town
	after.Approvals = list
	out, err := s.signalled(&about, KindDecided, PurposeDecision, after)
	out.DecidedApproval = &decided
	return out, err
}

// signalled returns the record of an accepted signal that changes a town.
func (s *step) signalled(e *Signal, kind Kind, purpose Purpose, after Town) (Output, error) {
	p := s.producer(e.Run)
	err := EmitSignal(p, e.Payload(), "")
	return Output{
		Record:   &Record{Kind: kind, Purpose: purpose, TownID: s.in.TownID, Run: p.Run()},
		NextTown: after,
	}, err
}

// refuseSignal returns the record of a refused signal, which changes no town.
func (s *step) refuseSignal(e *Signal, refused *approval.SignalRefusal) (Output, error) {
	out, err := (&RecordSignal{e, refused.Code}).effect(s)
	out.SignalRefusal = refused
	return out, err
}

// RefusedError: a signal was refused. SignalID is the run that records the refusal.
type RefusedError struct {
	approval.SignalRefusal
	SignalID string
}

func (e *RefusedError) Error() string { return "machine: " + e.Message }

// RefusedBy returns the error of a signal that was refused; nil without a refusal.
func (e *Signal) RefusedBy(refusal *approval.SignalRefusal) error {
	if refusal == nil {
		return nil
	}
	return &RefusedError{*refusal, e.Run.RunID}
}

// RecordSignal records a signal that changes no town: Code refuses it, "" accepts it.
type RecordSignal struct {
	Signal *Signal
	Code   wire.Code
}

func (*RecordSignal) MaxIDs() int { return maxRunIDs }

func (*RecordSignal) TailRun(*Town) (runID string, emitted int64) { return "", 0 }

func (e *RecordSignal) effect(s *step) (Output, error) {
	p := s.producer(e.Signal.Run)
	err := EmitSignal(p, e.Signal.Payload(), string(e.Code))
	return Output{
		Record: &Record{Kind: KindSignal, Purpose: PurposeSignal, TownID: s.in.TownID, Run: p.Run()},
	}, err
}
