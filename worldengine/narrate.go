package worldengine

import (
	"worldengine/handoff"
	"worldengine/runevents"
)

// The steps of every run, in order.
const (
	stepDuplicate    = "duplicate-check"
	stepStale        = "stale-check"
	stepPrecondition = "precondition-check"
	stepApply        = "apply"
)

// The payloads of a run's events. A check's payload is its block of the result, so that the events
// and the result say the same.
type (
	startedPayload struct {
		TownID    string               `json:"townId"`
		ActorID   string               `json:"actorId"`
		HandoffID string               `json:"handoffId"`
		Type      handoff.ProposalType `json:"type"`
		Command   string               `json:"command"`
	}
	skippedPayload struct {
		Reason handoff.ReasonCode `json:"reason"`
	}
	failedPayload struct {
		Error stepError `json:"error"`
	}
	stepError struct {
		Code      string `json:"code"`
		Message   string `json:"message"`
		Retryable bool   `json:"retryable"`
	}
	pausedPayload struct {
		SignalID string `json:"signalId"`
		Reason   string `json:"reason,omitzero"`
	}
	cancelledPayload struct {
		SignalID string `json:"signalId,omitzero"`
		Reason   string `json:"reason,omitzero"`
	}
	signalPayload struct {
		Signal  SignalKind `json:"signal"`
		TownID  string     `json:"townId,omitzero"`
		RunID   string     `json:"runId,omitzero"`
		ActorID string     `json:"actorId"`
		Reason  string     `json:"reason,omitzero"`
		Code    string     `json:"code,omitzero"`
	}
	endedPayload struct {
		Status     handoff.Status     `json:"status"`
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
		ResultID   string             `json:"resultId"`
	}
)

// narrate emits the events of a whole run: what was asked, each step, how it ended. A check that
// the result calls evaluated is started and completed, one that is not is skipped with the reason
// that made it needless.
func narrate(p *runevents.Producer, h *handoff.Handoff, r *handoff.Result, start beginning) error {
	n := narrator{producer: p}
	n.begin(h, start)
	n.checks(&r.Evaluation, r.ReasonCode)
	if r.Accepted {
		n.attempt(runevents.StepStarted, 1, nil)
	} else {
		n.step(runevents.StepSkipped, stepApply, skippedPayload{Reason: r.ReasonCode})
	}
	n.end(r, 1, nil)
	return n.err
}

// narrateAccepted emits the events of a run up to the application of its command, which is left to
// somebody else.
func narrateAccepted(p *runevents.Producer, h *handoff.Handoff, e *handoff.Evaluation, start beginning) error {
	n := narrator{producer: p}
	n.begin(h, start)
	n.checks(e, "")
	n.attempt(runevents.StepStarted, 1, nil)
	return n.err
}

// narrateEnd emits how the last attempt to apply a command ended, and with it the run.
func narrateEnd(p *runevents.Producer, r *handoff.Result, attempt int64, failed *applyFailed) error {
	n := narrator{producer: p}
	n.end(r, attempt, failed)
	return n.err
}

// signalVersion is the planVersion of the runs of signals.
const signalVersion = "signal.v1"

// narrateSignal emits the events of an operator's signal: a run of its own. refused is the code of a
// refusal, "" for a signal that is accepted.
func narrateSignal(p *runevents.Producer, s *Signal, refused string) error {
	n := narrator{producer: p}
	said := signalPayload{Signal: s.Kind, TownID: s.TownID, RunID: s.RunID, ActorID: s.ActorID, Reason: s.Reason}
	decision, ended := runevents.SignalAccepted, runevents.RunCompleted
	if refused != "" {
		decision, ended = runevents.SignalRejected, runevents.RunFailed
	}
	n.run(runevents.RunStarted, said)
	said.Code = refused
	if n.err == nil {
		n.err = p.Signal(decision, said)
	}
	n.run(ended, nil)
	return n.err
}

// cancelled emits that a paused run is cancelled, by a signal or because the engine stops. The producer
// may be one that has not emitted what came before.
func cancelled(p *runevents.Producer, signalID, reason string) error {
	return p.Signal(runevents.RunCancelled, cancelledPayload{SignalID: signalID, Reason: reason})
}

// beginning is how a run begins.
type beginning int

const (
	atOnce  beginning = iota
	queued            // it had to wait for its town
	resumed           // it was told of when its town was paused, and goes on
)

// narrator emits until the first error, which it keeps.
type narrator struct {
	producer *runevents.Producer
	err      error
}

func (n *narrator) run(event runevents.EventType, payload any) {
	if n.err == nil {
		n.err = n.producer.OfRun(event, payload)
	}
}

func (n *narrator) step(event runevents.EventType, step string, payload any) {
	if n.err == nil {
		n.err = n.producer.OfStep(event, step, payload)
	}
}

func (n *narrator) attempt(event runevents.EventType, attempt int64, payload any) {
	if n.err == nil {
		n.err = n.producer.OfAttempt(event, stepApply, attempt, payload)
	}
}

func (n *narrator) begin(h *handoff.Handoff, start beginning) {
	switch start {
	case resumed:
		n.run(runevents.RunResumed, nil)
		return
	case queued:
		n.run(runevents.RunQueued, nil)
	}
	n.run(runevents.RunStarted, startedPayload{
		TownID: h.Proposal.TownID, ActorID: h.Proposal.ActorID,
		HandoffID: h.HandoffID, Type: h.Proposal.Type, Command: h.Command,
	})
}

func (n *narrator) checks(e *handoff.Evaluation, reason handoff.ReasonCode) {
	n.check(stepDuplicate, e.DuplicateCheck.Evaluated, e.DuplicateCheck, reason)
	n.check(stepStale, e.StaleCheck.Evaluated, e.StaleCheck, reason)
	n.check(stepPrecondition, e.Preconditions.Evaluated, e.Preconditions, reason)
}

func (n *narrator) check(step string, evaluated bool, verdict any, reason handoff.ReasonCode) {
	if !evaluated {
		n.step(runevents.StepSkipped, step, skippedPayload{Reason: reason})
		return
	}
	n.step(runevents.StepStarted, step, nil)
	n.step(runevents.StepCompleted, step, verdict)
}

// end ends the attempt to apply the command, where it was accepted, and the run.
func (n *narrator) end(r *handoff.Result, attempt int64, failed *applyFailed) {
	ended := runevents.RunCompleted
	switch {
	case r.Executed:
		n.attempt(runevents.StepCompleted, attempt, r.WorldState)
	case r.Accepted:
		if failed == nil {
			failed = &applyFailed{
				Reason: r.ReasonCode, Message: "The command could not be applied; the town is unchanged.",
			}
		}
		n.attempt(runevents.StepFailed, attempt, failurePayload(failed))
		ended = runevents.RunFailed
	}
	n.run(ended, endedPayload{Status: r.Status, ReasonCode: r.ReasonCode, ResultID: r.ResultID})
}

// failurePayload says why an attempt failed, with the words of whoever refused it.
func failurePayload(f *applyFailed) failedPayload {
	return failedPayload{Error: stepError{
		Code: orDefault(f.Code, string(f.Reason)), Message: f.Message, Retryable: f.Retryable,
	}}
}
