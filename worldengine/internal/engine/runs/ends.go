package runs

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// Ends reads how runs have ended. Every member must be set.
type Ends struct {
	Log  *commitlog.Log
	Runs Reader
}

// Reader reads runs. It is a *Store.
type Reader interface {
	Get(ctx context.Context, runID string) (runevents.Snapshot, error)
	EndedAt(ctx context.Context, runID string) (uint64, error)
}

// Failed is a run whose handoff may be judged again.
type Failed struct {
	apply.RetryOf
	TownID  string
	Handoff *handoff.Handoff
	// Trace is the trace of the run's request, if it had one.
	Trace trace.Context
}

// End returns the record that ended a run of the engine, and its log sequence. The record is nil if
// the run has not ended or the log does not keep the record. The errors are EndedAt's and
// commitlog.ErrLogUnavailable.
func (e *Ends) End(ctx context.Context, runID string) (*commitlog.Record, uint64, error) {
	seq, err := e.Runs.EndedAt(ctx, runID)
	if err != nil || seq == 0 {
		return nil, 0, err
	}
	rec, _, err := e.Log.RecordAt(ctx, seq)
	if errors.Is(err, commitlog.ErrGone) {
		return nil, seq, nil
	}
	if err == nil && (rec.Run == nil || rec.Run.RunID != runID) {
		err = fmt.Errorf("worldengine: the events of run %s name log sequence %d for its end, "+
			"which has another run: handoffctl fsck says what is wrong with them", runID, seq)
	}
	return rec, seq, err
}

// Record returns the record that ended a run, as End does. If the run events that name the record
// are gone or cannot be read, Record returns nil: no later try would find the record.
func (e *Ends) Record(ctx context.Context, runID string) (*commitlog.Record, error) {
	rec, _, err := e.End(ctx, runID)
	if errors.Is(err, ErrUnknownRun) || errors.Is(err, ErrRunDamaged) {
		return nil, nil
	}
	return rec, err
}

// HasEnded reports whether a run has ended. A run of which nothing is kept has not ended.
func (e *Ends) HasEnded(ctx context.Context, runID string) (bool, error) {
	run, err := e.known(ctx, runID)
	return run.Status.Terminal(), err
}

// TownOf returns the town that the start of a run names, "" if there is no such run.
func (e *Ends) TownOf(ctx context.Context, runID string) (string, error) {
	run, err := e.known(ctx, runID)
	return machine.ReadStarted(&run).TownID, err
}

// known returns the state of a run, zero if there is no such run.
func (e *Ends) known(ctx context.Context, runID string) (runevents.Snapshot, error) {
	run, err := e.Runs.Get(ctx, runID)
	if errors.Is(err, ErrUnknownRun) {
		return runevents.Snapshot{}, nil
	}
	return run, err
}

// Failed returns a run whose end allows a retry: it failed without reaching a plugin or console
// (RETRY_STEP of Execution Semantics v1; docs/adr/0026-a-retry-is-another-run.md). The town's
// present state and the key's receipt decide the rest. If Failed returns a refusal, the result has
// no handoff, and its town only if the run's end is kept.
func (e *Ends) Failed(ctx context.Context, runID string) (Failed, *approval.Refusal, error) {
	rec, seq, err := e.End(ctx, runID)
	switch {
	case err != nil:
		return Failed{}, nil, err
	case seq == 0:
		return Failed{}, no("the engine has not ended the run: only a run that has failed with " +
			"PLUGIN_UNAVAILABLE can be retried"), nil
	case rec == nil:
		return Failed{}, no("the log does not keep the end of the run any more: its agent makes " +
			"a new proposal"), nil
	}
	failed := Failed{RetryOf: apply.RetryOf{RunID: runID, LogSeq: seq}, TownID: rec.TownID}
	if refusal := refuseRetry(rec); refusal != nil {
		return failed, refusal, nil
	}
	failed.Trace = rec.Run.Trace
	failed.Handoff, err = handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		err = fmt.Errorf("worldengine: the handoff at log sequence %d: %w", seq, err)
	}
	return failed, nil, err
}

// refuseRetry refuses to retry the run that a record ended; nil if it may be retried.
func refuseRetry(rec *commitlog.Record) *approval.Refusal {
	switch rec.Kind {
	case commitlog.KindHandoff, commitlog.KindRefused, commitlog.KindAsked:
	case commitlog.KindCancelled, commitlog.KindRun:
		return no("the run was cancelled: send its handoff again, or, if this run retried another " +
			"one, retry that one, which its RunStarted names as context.retryOf")
	default:
		return no("the run belongs to a signal, and has no handoff")
	}
	var said handoff.Result
	if err := json.Unmarshal(rec.Result, &said); err != nil {
		return no("the result of the run cannot be read: handoffctl fsck says what is wrong with it")
	}
	ended := fmt.Sprintf("the run ended %s, %s", said.Status, said.ReasonCode)
	switch {
	case said.Status == handoff.Duplicate:
		return no(ended + ": it repeated another run, which run.get names; that one may be retried")
	case !said.Status.Accepted() && rec.RetryOf != nil:
		return no(ended + ", and did not change the run that it retried, " +
			rec.RetryOf.RunID + ": that one may be retried again")
	case !said.Status.Accepted():
		return no(ended + ", and its key is free: the same handoff may be sent again")
	case said.Status == handoff.Executed:
		return no(ended + ": there is nothing to retry")
	case said.ReasonCode == apply.ReasonPluginUnavailable:
		return nil
	case apply.MayBeApplied(said.ReasonCode):
		return &approval.Refusal{Code: wire.CodeRunInDoubt, Message: ended + ": its command may have " +
			"been applied, so that a retry might apply it twice; look at the game, put the town's " +
			"true state, and let the agent make a new proposal"}
	}
	return no(ended + ": the command was refused, and would be again; its agent makes a new " +
		"proposal")
}

func no(message string) *approval.Refusal {
	return &approval.Refusal{Code: wire.CodeRunNotRetryable, Message: message}
}

// Judge refuses a retry unless the key's present receipt still has the result of the run.
func (f *Failed) Judge(now *dedupe.Receipt) *approval.Refusal {
	switch {
	case now == nil:
		return no("the receipt of the run has expired, and its key is free: the same handoff may " +
			"be sent again")
	case now.RunID != f.RunID:
		return &approval.Refusal{Code: wire.CodeRunRetried,
			Message: "the run was retried before: the result of its key is that of run " + now.RunID}
	}
	return nil
}

// InHand refuses a retry because another retry of the run is being applied, as the run runID.
func InHand(runID string) *approval.Refusal {
	return &approval.Refusal{Code: wire.CodeRunRetried,
		Message: "another retry of the run was first: its command is being applied, in run " + runID}
}
