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
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func (s *Service) signalEndpoints() []*endpoint {
	return []*endpoint{
		signalEndpoint(s, wire.RunCancel, signalOf(machine.SignalCancel), (*ServedWorld).control),
		signalEndpoint(s, wire.RunRetry, signalOf(machine.SignalRetry), (*ServedWorld).runRetry),
		signalEndpoint(s, wire.ControlPause, signalOf(machine.SignalPause), (*ServedWorld).control),
		signalEndpoint(s, wire.ControlResume, signalOf(machine.SignalResume), (*ServedWorld).control),
		signalEndpoint(s, wire.ApprovalDecide, decisionOf, (*ServedWorld).approvalDecide),
		direct(s, wire.ControlGet, (*ServedWorld).controlGet),
	}
}

// submitTimeout is how long run.retry and approval.decide wait for the result of the handoff that they
// have submitted.
const submitTimeout = 3 * time.Second

// parsePartial reads the valid members of an invalid request. Of broken JSON it reads only the members
// before the error.
func parsePartial(data []byte, request any) {
	var broken *stdjson.SyntaxError
	if errors.As(stdjson.Unmarshal(data, request), &broken) {
		_ = json.Unmarshal(data, request)
	}
}

// recordRefused records a signal that is refused before the engine looks at it.
func (w *ServedWorld) recordRefused(given engine.Signal, refused error) {
	if err := w.engine.Signals().RecordRefused(w.ctx, given, failureOf(refused).Code); err != nil {
		w.config.Logger.Warn("a refused signal cannot be recorded", "signal", given.Kind,
			"error", err)
	}
}

// signalOf returns a function that converts a request to a signal of a kind.
func signalOf(kind machine.SignalKind) func(*messages.Signal) engine.Signal {
	return func(r *messages.Signal) engine.Signal {
		return engine.Signal{
			Kind: kind, TownID: r.TownID, RunID: r.RunID, ActorID: r.ActorID, Reason: r.Reason,
			Force: r.Force, DrainTimeout: time.Duration(r.DrainTimeoutMs) * time.Millisecond,
		}
	}
}

// control gives a signal that pauses, resumes or cancels.
func (w *ServedWorld) control(_ *messages.Signal, given engine.Signal) (messages.Control, error) {
	return w.engine.Signals().Handle(w.ctx, given)
}

func (w *ServedWorld) controlGet(in *incoming, r *messages.Signal) (control messages.Control, err error) {
	if r.TownID == "" {
		err = in.rights.CheckReadWorld()
	} else {
		err = in.rights.CheckRead(r.TownID)
	}
	if err != nil {
		return control, err
	}
	return w.engine.Signals().Control(w.ctx, r.TownID)
}

func (w *ServedWorld) runRetry(_ *messages.Signal, given engine.Signal) (messages.Retried, error) {
	return w.engine.Signals().Retry(w.ctx, given, submitTimeout)
}

// decisionOf makes a signal of a person's decision.
func decisionOf(r *messages.ApprovalDecide) engine.Signal {
	kind := machine.SignalDeny
	if r.Decision == messages.Approve {
		kind = machine.SignalApprove
	}
	return engine.Signal{
		Kind: kind, TownID: r.TownID, HandoffID: r.HandoffID, HandoffHash: r.HandoffHash,
		ActorID: r.ActorID, Reason: r.Reason,
	}
}

// approvalDecide records a decision and, if the request says so, submits the approved handoff.
func (w *ServedWorld) approvalDecide(
	r *messages.ApprovalDecide, given engine.Signal,
) (outcome messages.Decided, err error) {
	entry, delivery, err := w.engine.Signals().Decide(w.ctx, given, r.Submit)
	if err != nil {
		return outcome, err
	}
	d := entry.Decision
	outcome = messages.Decided{
		TownID: given.TownID, HandoffID: entry.HandoffID, Decision: r.Decision,
		SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason, At: runevents.Timestamp(d.At),
		RunID: entry.RunID,
	}
	if delivery != nil {
		w.awaitDelivery(delivery, &entry, &outcome)
	}
	return outcome, nil
}

// awaitDelivery puts the result of the approved handoff into outcome, or the reason why there is none.
func (w *ServedWorld) awaitDelivery(
	delivery *engine.Redelivery, entry *approval.Request, outcome *messages.Decided,
) {
	ctx, cancel := context.WithTimeout(w.ctx, submitTimeout)
	defer cancel()
	answer, err := delivery.Wait(ctx)
	if err == nil {
		outcome.RunID, outcome.Result = answer.RunID, answer.JSON
		return
	}
	f := failureOf(err)
	outcome.RunID = cmp.Or(answer.RunID, f.runID, outcome.RunID)
	switch {
	case ctx.Err() != nil:
		f.Code, f.Text = wire.CodeInProgress, "the handoff was submitted, and has no result yet: it "+
			"may still be executed or refused. Look at its run, and ask result.get, which has the "+
			"result of an executed one"
	case f.Code == wire.CodeUnknownResult:
		f.Text = fmt.Sprintf("the handoff was accepted for execution in run %s, and has no result: the "+
			"run was cancelled, or the log does not keep its result any more; look at the run",
			entry.RunID)
	}
	outcome.NotSubmitted = &messages.NotSubmitted{Code: f.Code, Message: f.Text}
}
