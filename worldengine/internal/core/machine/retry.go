package machine

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/wire"
)

// FailedRun is a run that may be retried: its handoff may be judged again.
type FailedRun struct {
	apply.RetryOf
	TownID  string
	Handoff *handoff.Handoff
	// Trace is the trace of the run's request, if it had one.
	Trace trace.Context
}

// NewFailedRun returns a run whose end allows a retry: it failed without reaching a plugin or console
// (RETRY_STEP of Execution Semantics v1; docs/adr/0026-a-retry-is-another-run.md). The end of the run is
// the record at a log sequence: sequence 0 if the engine has not ended the run, and a nil record if the log
// does not keep the end. The town's present state and the key's receipt decide the rest: see
// CheckReceipt. With a refusal the FailedRun has no handoff, and its town only if the end is kept.
func NewFailedRun(runID string, seq uint64, end *Record) (FailedRun, *approval.SignalRefusal, error) {
	switch {
	case seq == 0:
		return FailedRun{}, notRetryable("the engine has not ended the run: only a run that has failed with " +
			"PLUGIN_UNAVAILABLE can be retried"), nil
	case end == nil:
		return FailedRun{}, notRetryable("the log does not keep the end of the run any more: its agent makes " +
			"a new proposal"), nil
	}
	failed := FailedRun{RetryOf: apply.RetryOf{RunID: runID, LogSeq: seq}, TownID: end.TownID}
	if refusal := refuseRetry(end); refusal != nil {
		return failed, refusal, nil
	}
	failed.Trace = end.Run.Trace
	var err error
	failed.Handoff, err = handoff.Parse(end.Handoff, schemas.Limits{Bytes: len(end.Handoff) + 1})
	if err != nil {
		err = fmt.Errorf("machine: the handoff at log sequence %d: %w", seq, err)
	}
	return failed, nil, err
}

// refuseRetry refuses to retry the run that a record ended; nil if it may be retried.
func refuseRetry(end *Record) *approval.SignalRefusal {
	switch spec := end.Kind.Spec(); {
	case spec.Signal:
		return notRetryable("the run belongs to a signal, and has no handoff")
	case !spec.HasResult:
		return notRetryable("the run was cancelled: send its handoff again, or, if this run retried another " +
			"one, retry that one, which its RunStarted names as context.retryOf")
	}
	var result handoff.Result
	if err := json.Unmarshal(end.Result, &result); err != nil {
		return notRetryable("the result of the run cannot be read: handoffctl fsck says what is wrong with it")
	}
	ended := fmt.Sprintf("the run ended %s, %s", result.Status, result.ReasonCode)
	switch {
	case result.Status == handoff.Duplicate:
		return notRetryable(ended + ": it repeated another run, which run.get names; that one may be retried")
	case !result.Status.Accepted() && end.RetryOf != nil:
		return notRetryable(ended + ", and did not change the run that it retried, " +
			end.RetryOf.RunID + ": that one may be retried again")
	case !result.Status.Accepted():
		return notRetryable(ended + ", and its key is free: the same handoff may be sent again")
	case result.Status == handoff.Executed:
		return notRetryable(ended + ": there is nothing to retry")
	case apply.MayBeRetried(result.ReasonCode):
		return nil
	case apply.MayBeApplied(result.ReasonCode):
		return &approval.SignalRefusal{Code: wire.CodeRunInDoubt, Message: ended + ": its command may have " +
			"been applied, so that a retry might apply it twice; look at the game, put the town's " +
			"true state, and let the agent make a new proposal"}
	}
	return notRetryable(ended + ": the command was refused, and would be again; its agent makes a new " +
		"proposal")
}

func notRetryable(message string) *approval.SignalRefusal {
	return &approval.SignalRefusal{Code: wire.CodeRunNotRetryable, Message: message}
}

// CheckReceipt refuses a retry unless the key's present receipt, nil for none, still has the result of the run.
func (f *FailedRun) CheckReceipt(now *dedupe.Receipt) *approval.SignalRefusal {
	switch {
	case now == nil:
		return notRetryable("the receipt of the run has expired, and its key is free: the same handoff may " +
			"be sent again")
	case now.RunID != f.RunID:
		return &approval.SignalRefusal{Code: wire.CodeRunRetried,
			Message: "the run was retried before: the result of its key is that of run " + now.RunID}
	}
	return nil
}

// RefuseSecondRetry refuses a retry because another retry of the run is being applied, as the run runID.
func RefuseSecondRetry(runID string) *approval.SignalRefusal {
	return &approval.SignalRefusal{Code: wire.CodeRunRetried,
		Message: "another retry of the run was first: its command is being applied, in run " + runID}
}
