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

// Terminal reports whether a run has ended: no event moves it from there.
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

// NextRunStatus returns the status that a run-level event moves a run to, and whether the event
// is valid there; where it is not, the status is the one that was attempted. The targets are those
// of RunEvents v2.0.1, section 5.1, the sources those of the diagram of ExecutionSemantics v1,
// section 1.2, and the terminal statuses are immutable. Two sources go beyond the diagram, because
// v2 no longer has RunApproved: a run starts from PENDING too, and RunQueued, which moves nothing,
// is valid until then.
func NextRunStatus(now RunStatus, event EventType) (RunStatus, bool) {
	switch event {
	case RunQueued:
		if now == RunIsApproved {
			return now, true
		}
		return RunPending, now == RunPending
	case RunApproved:
		return RunIsApproved, now == RunPending
	case RunStarted:
		return RunRunning, now == RunPending || now == RunIsApproved
	case RunPaused:
		return RunIsPaused, now == RunRunning
	case RunResumed:
		return RunRunning, now == RunIsPaused
	case RunCompleted:
		return RunSucceeded, now == RunRunning
	case RunFailed:
		return RunHasFailed, now == RunRunning
	case RunCancelled:
		return RunAborted, now == RunRunning || now == RunIsPaused
	}
	return now, false
}

// NextStepStatus returns the status that a step-level event moves a step attempt to, and whether
// the event is valid there; where it is not, the status is the one that was attempted (section
// 5.2).
func NextStepStatus(now StepStatus, event EventType) (StepStatus, bool) {
	switch event {
	case StepStarted:
		return StepRunning, now == StepPending
	case StepCompleted:
		return StepSucceeded, now == StepRunning
	case StepFailed:
		return StepHasFailed, now == StepRunning
	case StepSkipped:
		return StepWasSkipped, now == StepPending
	}
	return now, false
}

// runStatuses and stepStatuses are all that there are, in the order in which a run and a step go
// through them.
var (
	runStatuses = []RunStatus{
		RunPending, RunIsApproved, RunRunning, RunIsPaused, RunSucceeded, RunHasFailed, RunAborted,
	}
	stepStatuses = []StepStatus{StepPending, StepRunning, StepSucceeded, StepHasFailed,
		StepWasSkipped}
)

// nextEmitted is NextRunStatus for a producer, which emits decisions about signals too: they move
// nothing, and are valid from the start of the run to its end.
func nextEmitted(now RunStatus, event EventType) (RunStatus, bool) {
	if event.ofSignal() {
		return now, now == RunRunning || now == RunIsPaused
	}
	return NextRunStatus(now, event)
}

// validIn returns the statuses of the step, or with "" of the run, in which event is valid, joined
// by " or ".
func validIn(event EventType, stepID string) string {
	var in []string
	if stepID == "" {
		for _, status := range runStatuses {
			if _, ok := nextEmitted(status, event); ok {
				in = append(in, string(status))
			}
		}
	} else {
		for _, status := range stepStatuses {
			if _, ok := NextStepStatus(status, event); ok {
				in = append(in, string(status))
			}
		}
	}
	return strings.Join(in, " or ")
}
