package lifecycle

import (
	"encoding/json"
	"errors"

	"worldengine/runevents"
)

// SignalKind is the kind of an operator's signal (ExecutionSemantics v1, section 1.2). The set is
// closed.
type SignalKind string

// The signals.
const (
	// SignalPause: no handoff of the town, or of the world, is judged until SignalResume. Waiting
	// runs get RunPaused; a command that is being applied is not interrupted.
	SignalPause SignalKind = "PAUSE"
	// SignalResume ends a pause.
	SignalResume SignalKind = "RESUME"
	// SignalCancel ends a waiting handoff's run, or one whose command no game has.
	SignalCancel SignalKind = "CANCEL"
	// SignalApprove executes a handoff that waits for a person's approval; SignalDeny refuses it.
	SignalApprove SignalKind = "APPROVE"
	SignalDeny    SignalKind = "DENY"
	// SignalRetry retries a run's handoff, if no game can have its command, in another run.
	SignalRetry SignalKind = "RETRY_STEP"
)

// Signals returns all signals.
func Signals() []SignalKind {
	return []SignalKind{
		SignalPause, SignalResume, SignalCancel, SignalRetry, SignalApprove, SignalDeny,
	}
}

// SignalIn returns the payload of the decision about a signal in a run.
func SignalIn(run *runevents.Run) (said SignalPayload, err error) {
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
