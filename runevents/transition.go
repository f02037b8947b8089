package runevents

import "strings"

// RunStatus is the derived status of a run.
type RunStatus string

// The statuses of a run.
const (
	RunPending    RunStatus = "PENDING"
	RunIsApproved RunStatus = "APPROVED"
	RunRunning    RunStatus = "RUNNING"
	RunIsPaused   RunStatus = "PAUSED"
	RunSucceeded  RunStatus = "COMPLETED"
	RunHasFailed  RunStatus = "FAILED"
	RunAborted    RunStatus = "CANCELLED"
)

// Terminal reports whether the status is final: no event moves a run that has ended.
func (s RunStatus) Terminal() bool {
	return s == RunSucceeded || s == RunHasFailed || s == RunAborted
}

// StepStatus is the derived status of one logical attempt of a step.
type StepStatus string

// The statuses of a step attempt.
const (
	StepPending    StepStatus = "PENDING"
	StepRunning    StepStatus = "RUNNING"
	StepSucceeded  StepStatus = "SUCCESS"
	StepHasFailed  StepStatus = "FAILED"
	StepWasSkipped StepStatus = "SKIPPED"
)

// NextRunStatus returns the status after a run-level event, and whether the event is valid. If the
// event is invalid, the returned status is the one that it attempts. After the end of a run no
// event is valid.
func NextRunStatus(now RunStatus, event EventType) (RunStatus, bool) {
	return next(now, event, OfRun)
}

// NextStepStatus is NextRunStatus for a step-level event and a step attempt.
func NextStepStatus(now StepStatus, event EventType) (StepStatus, bool) {
	return next(now, event, OfStep)
}

// RunStatuses returns the statuses of a run, in the order in which a run may reach them.
func RunStatuses() []RunStatus {
	return []RunStatus{
		RunPending, RunIsApproved, RunRunning, RunIsPaused, RunSucceeded, RunHasFailed, RunAborted,
	}
}

// nextEmitted is NextRunStatus for producers, which also decide about signals.
func nextEmitted(now RunStatus, event EventType) (RunStatus, bool) {
	if event.ofSignal() {
		return next(now, event, OfSignal)
	}
	return NextRunStatus(now, event)
}

// validIn returns the statuses in which event is valid, joined by " or ". They are statuses of the
// step or, if stepID is "", of the run. If event is of the other level, validIn returns "".
func validIn(event EventType, stepID string) string {
	spec := event.Spec()
	if (spec.Level == OfStep) != (stepID != "") {
		return ""
	}
	return strings.Join(spec.From, " or ")
}
