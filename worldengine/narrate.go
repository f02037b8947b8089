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
		Code      handoff.ReasonCode `json:"code"`
		Message   string             `json:"message"`
		Retryable bool               `json:"retryable"`
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
func narrate(p *runevents.Producer, h *handoff.Handoff, r *handoff.Result, queued bool) error {
	n := narrator{producer: p}
	if queued {
		n.run(runevents.RunQueued, nil)
	}
	n.run(runevents.RunStarted, startedPayload{
		TownID: h.Proposal.TownID, ActorID: h.Proposal.ActorID,
		HandoffID: h.HandoffID, Type: h.Proposal.Type, Command: h.Command,
	})
	e := &r.Evaluation
	n.check(stepDuplicate, e.DuplicateCheck.Evaluated, e.DuplicateCheck, r.ReasonCode)
	n.check(stepStale, e.StaleCheck.Evaluated, e.StaleCheck, r.ReasonCode)
	n.check(stepPrecondition, e.Preconditions.Evaluated, e.Preconditions, r.ReasonCode)
	n.apply(r)
	end := runevents.RunCompleted
	if r.Status == handoff.Failed {
		end = runevents.RunFailed
	}
	n.run(end, endedPayload{Status: r.Status, ReasonCode: r.ReasonCode, ResultID: r.ResultID})
	return n.err
}

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

func (n *narrator) check(step string, evaluated bool, verdict any, reason handoff.ReasonCode) {
	if !evaluated {
		n.step(runevents.StepSkipped, step, skippedPayload{Reason: reason})
		return
	}
	n.step(runevents.StepStarted, step, nil)
	n.step(runevents.StepCompleted, step, verdict)
}

func (n *narrator) apply(r *handoff.Result) {
	if !r.Accepted {
		n.step(runevents.StepSkipped, stepApply, skippedPayload{Reason: r.ReasonCode})
		return
	}
	n.step(runevents.StepStarted, stepApply, nil)
	if r.Executed {
		n.step(runevents.StepCompleted, stepApply, r.WorldState)
		return
	}
	n.step(runevents.StepFailed, stepApply, failedPayload{Error: stepError{
		Code: r.ReasonCode, Message: "The command could not be applied; the town is unchanged.",
	}})
}
