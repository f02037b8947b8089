package service

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/game"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func (s *Service) signalEndpoints() []*endpoint {
	return []*endpoint{
		signals(s, wire.RunCancel, signalOf(machine.SignalCancel), s.control),
		signals(s, wire.RunRetry, signalOf(machine.SignalRetry), s.runRetry),
		signals(s, wire.ControlPause, signalOf(machine.SignalPause), s.control),
		signals(s, wire.ControlResume, signalOf(machine.SignalResume), s.control),
		signals(s, wire.ApprovalDecide, decisionOf, s.approvalDecide),
		reads(s, wire.ControlGet, s.controlGet),
	}
}

// submitWait is how long run.retry and approval.decide wait for the result of the handoff that they
// have submitted.
const submitWait = 3 * time.Second

// salvage reads the valid members of an invalid request. Of broken JSON it reads only the members
// before the error.
func salvage(data []byte, request any) {
	var broken *stdjson.SyntaxError
	if errors.As(stdjson.Unmarshal(data, request), &broken) {
		_ = json.Unmarshal(data, request)
	}
}

// recordRefused records a signal that is refused before the engine looks at it.
func (s *Service) recordRefused(given worldengine.Signal, refused error) {
	if err := s.engine.Reject(s.ctx, given, specOf(refused).Code); err != nil {
		s.config.Logger.Warn("a refused signal cannot be recorded", "signal", given.Kind,
			"error", err)
	}
}

// signalOf returns a function that converts a request to a signal of a kind.
func signalOf(kind machine.SignalKind) func(*messages.Signal) worldengine.Signal {
	return func(r *messages.Signal) worldengine.Signal {
		return worldengine.Signal{
			Kind: kind, TownID: r.TownID, RunID: r.RunID, ActorID: r.ActorID, Reason: r.Reason,
			Force: r.Force, DrainTimeout: time.Duration(r.DrainTimeoutMs) * time.Millisecond,
		}
	}
}

// control pauses, resumes or cancels.
func (s *Service) control(_ *messages.Signal, given worldengine.Signal) (messages.Control, error) {
	return s.engine.Signal(s.ctx, given)
}

func (s *Service) controlGet(in *incoming, r *messages.Signal) (control messages.Control, err error) {
	if r.TownID == "" {
		err = in.rights.ReadWorld()
	} else {
		err = in.rights.Read(r.TownID)
	}
	if err != nil {
		return control, err
	}
	return s.engine.Control(s.ctx, r.TownID)
}

// runRetry tries the handoff of a run again.
func (s *Service) runRetry(_ *messages.Signal, given worldengine.Signal) (messages.Retried, error) {
	retried, err := s.engine.Retry(s.ctx, given, submitWait)
	body := messages.Retried{
		TownID: retried.TownID, HandoffID: retried.HandoffID, RetryOf: given.RunID,
		RunID: retried.RunID,
	}
	if retried.Answer != nil {
		body.Result = retried.Answer.JSON
	}
	return body, err
}

// decisionOf makes a signal of a person's decision.
func decisionOf(r *messages.ApprovalDecide) worldengine.Signal {
	kind := machine.SignalDeny
	if r.Decision == messages.Approve {
		kind = machine.SignalApprove
	}
	return worldengine.Signal{
		Kind: kind, TownID: r.TownID, HandoffID: r.HandoffID, HandoffHash: r.HandoffHash,
		ActorID: r.ActorID, Reason: r.Reason,
	}
}

// approvalDecide takes a decision and, if the request says so, submits the approved handoff.
func (s *Service) approvalDecide(
	r *messages.ApprovalDecide, given worldengine.Signal,
) (outcome messages.Decided, err error) {
	entry, err := s.engine.Decide(s.ctx, given)
	if err != nil {
		return outcome, err
	}
	d := entry.Decision
	outcome = messages.Decided{
		TownID: given.TownID, HandoffID: entry.HandoffID, Decision: r.Decision,
		SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason, At: runevents.Timestamp(d.At),
		RunID: entry.RunID,
	}
	if d.Approved && r.Submit {
		ctx, cancel := context.WithTimeout(s.ctx, submitWait)
		defer cancel()
		if entry.Handoff == nil {
			outcome.NotSubmitted = s.submitted(ctx, &entry, &outcome)
		} else {
			outcome.NotSubmitted = s.submitApproved(ctx, &entry, &outcome)
		}
	}
	return outcome, nil
}

// submitApproved executes the approved handoff, and puts its result into outcome, or returns the
// reason that there is none.
func (s *Service) submitApproved(
	ctx context.Context, entry *approval.Asked, outcome *messages.Decided,
) *messages.NotSubmitted {
	answer, err := s.engine.Deliver(ctx, entry)
	outcome.RunID = cmp.Or(answer.RunID, runOf(err))
	switch {
	case err == nil:
		outcome.Result = answer.JSON
		return nil
	case ctx.Err() != nil:
		return &messages.NotSubmitted{Code: wire.CodeInProgress, Message: "the handoff was " +
			"submitted, and has no result yet: it may still be executed or refused. Look at its " +
			"run, and ask result.get, which has the result of an executed one"}
	}
	return notSubmitted(err)
}

// submitted puts the result of a handoff that was accepted for execution before into outcome, or
// returns the reason that there is none. While a game has the command of a retry, the key still has
// the result of the retried run.
func (s *Service) submitted(
	ctx context.Context, entry *approval.Asked, outcome *messages.Decided,
) *messages.NotSubmitted {
	at, err := s.engine.Town(ctx, outcome.TownID)
	if err == nil && at.PendingRunID != "" && at.PendingRunID == entry.RunID {
		since, _ := time.Parse(time.RFC3339Nano, at.PluginAbsentSince) // zero if it is not away
		return notSubmitted(game.InProgress(entry.RunID, outcome.TownID, apply.Binding(at.Apply), since))
	}
	receipt, err := s.engine.Receipt(ctx, outcome.TownID, entry.IdempotencyKey)
	switch {
	case err == nil:
		outcome.RunID, outcome.Result = receipt.RunID, receipt.Result
		return nil
	case errors.Is(err, worldengine.ErrUnknownResult):
		return &messages.NotSubmitted{Code: wire.CodeUnknownResult, Message: fmt.Sprintf("the "+
			"handoff was accepted for execution in run %s, and its key has no result: the run was "+
			"cancelled, or the log does not keep its result any more; look at the run",
			entry.RunID)}
	}
	return notSubmitted(err)
}

// notSubmitted converts err, as the error reply of a handoff does.
func notSubmitted(err error) *messages.NotSubmitted {
	spec := specOf(err)
	return &messages.NotSubmitted{Code: spec.Code, Message: spec.Text}
}
