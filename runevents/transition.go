package runevents

import (
	"fmt"
)

// RunStatus is the derived status of a run.
type RunStatus string

// The statuses of a run.
const (
	RunStatusPending   RunStatus = "PENDING"
	RunStatusApproved  RunStatus = "APPROVED"
	RunStatusRunning   RunStatus = "RUNNING"
	RunStatusPaused    RunStatus = "PAUSED"
	RunStatusCompleted RunStatus = "COMPLETED"
	RunStatusFailed    RunStatus = "FAILED"
	RunStatusCancelled RunStatus = "CANCELLED"
)

// Terminal reports whether the status is final: no event moves a run that has ended.
func (s RunStatus) Terminal() bool {
	return s == RunStatusCompleted || s == RunStatusFailed || s == RunStatusCancelled
}

// StepStatus is the derived status of one logical attempt of a step.
type StepStatus string

// The statuses of a step attempt.
const (
	StepStatusPending StepStatus = "PENDING"
	StepStatusRunning StepStatus = "RUNNING"
	StepStatusSuccess StepStatus = "SUCCESS"
	StepStatusFailed  StepStatus = "FAILED"
	StepStatusSkipped StepStatus = "SKIPPED"
)

// NextRunStatus returns the status after a run-level event, and whether the event is valid. If the
// event is invalid, the returned status is the one that it attempts. After the end of a run no
// event is valid.
func NextRunStatus(now RunStatus, event EventType) (RunStatus, bool) {
	return next(now, event, RunLevel)
}

// NextStepStatus is NextRunStatus for a step-level event and a step attempt.
func NextStepStatus(now StepStatus, event EventType) (StepStatus, bool) {
	return next(now, event, StepLevel)
}

// RunStatuses returns the statuses of a run, in the order in which a run may reach them.
func RunStatuses() []RunStatus {
	return []RunStatus{
		RunStatusPending, RunStatusApproved, RunStatusRunning, RunStatusPaused, RunStatusCompleted, RunStatusFailed, RunStatusCancelled,
	}
}

// firstAttempt is the number of the first logical attempt (section 2.4).
const firstAttempt = 1

// InvalidTransitionError refuses an event that is not valid in the state of its run or step.
// Nothing was emitted. The caller must stop emitting for that run or step, and surface the error
// (section 5.3, layer 1).
type InvalidTransitionError struct {
	StepID    string // "" for the run
	Expected  string // the states in which the event is valid, joined by " or "; "" for none
	Actual    string
	Attempted EventType
}

func (e *InvalidTransitionError) Error() string {
	entity := "the run"
	if e.StepID != "" {
		entity = "step " + e.StepID
	}
	text := fmt.Sprintf("runevents: %s is %s, so %s is not a valid transition", entity,
		e.Actual, e.Attempted)
	if e.Expected != "" {
		text += ": it has to be " + e.Expected
	}
	return text
}

// Verdict is a projector's decision about an event.
type Verdict struct {
	// Prior is the status of the run or of the step attempt; Next is the one that follows or, after
	// an invalid event, the one that it attempts.
	Prior, Next string
	Valid       bool
	// Cause is the event that had to come first, but did not; "" for none.
	Cause string
}

// Judge returns the verdict on an event as the next one of a run, in the statuses of the run and of the event's step
// attempt. Projections, the append authority and other producers share it, so that they agree (RunEvents v2.0.1,
// section 5.3). It is pure.
func Judge(run RunStatus, step StepStatus, event EventType, stepID string) Verdict {
	switch event.Spec().Level {
	case RunLevel:
		next, valid := NextRunStatus(run, event)
		return Verdict{Prior: string(run), Next: string(next), Valid: valid && stepID == ""}
	case StepLevel:
		next, valid := NextStepStatus(step, event)
		v := Verdict{Prior: string(step), Next: string(next), Valid: valid}
		switch {
		case run.Terminal() || stepID == "":
			v.Prior, v.Valid = string(run), false
		case !valid && step == StepStatusPending:
			v.Cause = "its StepStarted"
		case valid && run != RunStatusRunning && run != RunStatusPaused:
			v.Cause = "RunStarted"
		}
		return v
	}
	return Verdict{Prior: string(run), Next: string(run), Valid: true}
}

// Alerts returns the alerts of a projector about e. An INVALID_TRANSITION comes first.
func (v *Verdict) Alerts(e *Record) (alerts []Alert) {
	if !v.Valid {
		why := "is not valid in " + v.Prior
		switch {
		case e.EventType.IsStepLevel() && e.StepID == "":
			why = "needs a stepId"
		case !e.EventType.IsStepLevel() && e.StepID != "":
			why = "must not have a stepId"
		}
		a := NewAlert(InvalidTransition, e, fmt.Sprintf(
			"%s at runSeq %d %s and was ignored", subject(e), e.RunSeq, why))
		a.PriorState, a.AttemptedState = v.Prior, v.Next
		alerts = append(alerts, a)
	}
	if v.Cause != "" {
		alerts = append(alerts, NewAlert(CausalViolation, e, fmt.Sprintf(
			"%s at runSeq %d comes before %s", subject(e), e.RunSeq, v.Cause)))
	}
	return alerts
}

func subject(e *Record) string {
	if e.StepID == "" {
		return string(e.EventType)
	}
	return fmt.Sprintf("%s of step %s, attempt %d,", e.EventType, e.StepID, e.LogicalAttemptID)
}
