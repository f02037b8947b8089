package runevents

import (
	"cmp"
	"fmt"
	"strings"
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

// validIn returns the statuses in which event is valid, joined by " or ". They are statuses of the
// step or, if stepID is "", of the run. If event is of the other level, validIn returns "".
func validIn(event EventType, stepID string) string {
	spec := event.Spec()
	if (spec.Level == StepLevel) != (stepID != "") {
		return ""
	}
	return strings.Join(spec.From, " or ")
}

// stepAttempt is a step attempt or, if stepID is "", the run.
type stepAttempt struct {
	stepID  string
	attempt int64
}

// statuses are the statuses of a run and of its step attempts. A step attempt that is not in steps
// is PENDING.
type statuses struct {
	run   RunStatus
	steps map[stepAttempt]StepStatus
}

// judge returns the verdict on e as the run's next event.
func (s *statuses) judge(e *Write) verdict {
	step := s.steps[stepAttempt{e.StepID, e.LogicalAttemptID}]
	return judge(s.run, cmp.Or(step, StepStatusPending), e.EventType, e.StepID)
}

// apply moves the run or the step attempt that e is about, if e is valid.
func (s *statuses) apply(e *Write) verdict {
	v := s.judge(e)
	s.move(e, v)
	return v
}

func (s *statuses) move(e *Write, v verdict) {
	switch {
	case !v.valid:
	case e.EventType.IsStepLevel():
		s.steps[stepAttempt{e.StepID, e.LogicalAttemptID}] = StepStatus(v.next)
	default:
		s.run = RunStatus(v.next)
	}
}

// verdict is a projector's decision about an event. The append authority and other producers share
// it, so that they agree with projections.
type verdict struct {
	// prior is the status of the run or of the step attempt; next is the one that follows or, after
	// an invalid event, the one that it attempts.
	prior, next string
	valid       bool
	cause       string // the event that had to come first, but did not; "" for none
}

// judge returns the verdict on an event in the statuses of its run and of its step attempt.
func judge(run RunStatus, step StepStatus, event EventType, stepID string) verdict {
	switch event.Spec().Level {
	case RunLevel:
		next, valid := NextRunStatus(run, event)
		return verdict{prior: string(run), next: string(next), valid: valid && stepID == ""}
	case StepLevel:
		next, valid := NextStepStatus(step, event)
		v := verdict{prior: string(step), next: string(next), valid: valid}
		switch {
		case run.Terminal() || stepID == "":
			v.prior, v.valid = string(run), false
		case !valid && step == StepStatusPending:
			v.cause = "its StepStarted"
		case valid && run != RunStatusRunning && run != RunStatusPaused:
			v.cause = "RunStarted"
		}
		return v
	}
	return verdict{prior: string(run), next: string(run), valid: true}
}

// alerts returns the alerts of a projector about e. An INVALID_TRANSITION comes first.
func (v *verdict) alerts(e *Record) (alerts []Alert) {
	if !v.valid {
		why := "is not valid in " + v.prior
		switch {
		case e.EventType.IsStepLevel() && e.StepID == "":
			why = "needs a stepId"
		case !e.EventType.IsStepLevel() && e.StepID != "":
			why = "must not have a stepId"
		}
		a := NewAlert(InvalidTransition, e, fmt.Sprintf(
			"%s at runSeq %d %s and was ignored", subject(e), e.RunSeq, why))
		a.PriorState, a.AttemptedState = v.prior, v.next
		alerts = append(alerts, a)
	}
	if v.cause != "" {
		alerts = append(alerts, NewAlert(CausalViolation, e, fmt.Sprintf(
			"%s at runSeq %d comes before %s", subject(e), e.RunSeq, v.cause)))
	}
	return alerts
}

func subject(e *Record) string {
	if e.StepID == "" {
		return string(e.EventType)
	}
	return fmt.Sprintf("%s of step %s, attempt %d,", e.EventType, e.StepID, e.LogicalAttemptID)
}
