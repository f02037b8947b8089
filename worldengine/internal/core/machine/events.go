package machine

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/runlog"
)

// The steps of every run, in order.
const (
	StepDuplicate    = "duplicate-check"
	StepStale        = "stale-check"
	StepPrecondition = "precondition-check"
	StepApply        = "apply"
)

// Steps returns the steps of the engine. In a run of the engine, no other producer may emit events
// of these steps.
func Steps() []string { return []string{StepDuplicate, StepStale, StepPrecondition, StepApply} }

// IsEnginePlan reports whether runs of a plan are the engine's, for handoffs and signals. A
// matching planId or planVersion suffices, so that no other producer's run looks like the engine's.
func IsEnginePlan(planID, planVersion string) bool {
	return planID == SignalPlan || strings.HasPrefix(planID, "proposal_") ||
		planVersion == SignalVersion || planVersion == handoff.ProposalVersion
}

// The payloads of a run's events. A check's payload is its block of the result, so that the two
// agree.
type (
	startedPayload struct {
		Started
		// The orchestrator's members of a run (Execution Semantics v1, appendix A.1).
		EngineRunRef string     `json:"engineRunRef"`
		PlanRef      planRef    `json:"planRef"`
		Context      runContext `json:"context"`
	}
	planRef struct {
		URI           string `json:"uri"`
		SchemaVersion string `json:"schemaVersion"`
	}
	runContext struct {
		TriggeredBy string `json:"triggeredBy"`
		RetryOf     string `json:"retryOf,omitzero"`
	}
	appliedPayload struct {
		handoff.WorldState `json:",inline"`
		apply.Artifacts    `json:",inline"`
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
	resumedPayload struct {
		Reason   string    `json:"reason,omitzero"`
		Approval *Approval `json:"approval,omitzero"`
	}
	// Approval is who approved a run, why, and by which signal.
	Approval struct {
		SignalID string `json:"signalId"`
		ActorID  string `json:"actorId"`
		Reason   string `json:"reason,omitzero"`
		// At is when the engine found that the approval is valid. It is the emittedAt of the event
		// that names the approval; zero for the time of emission.
		At time.Time `json:"-"`
	}
	// RetryRequest is the run to retry, with the operator who asks for that and the reason.
	RetryRequest struct{ RunID, ActorID, Reason string }
	// Cancellation is the reason of a cancelled run: an operator's signal, or Code.
	Cancellation struct {
		SignalID string `json:"signalId,omitzero"`
		Code     string `json:"code,omitzero"`
		Reason   string `json:"reason,omitzero"`
	}
	// SignalPayload is the payload of every event of a signal; Code is the reason of a refusal.
	SignalPayload struct {
		Signal  SignalKind `json:"signal"`
		TownID  string     `json:"townId,omitzero"`
		RunID   string     `json:"runId,omitzero"`
		ActorID string     `json:"actorId"`
		Reason  string     `json:"reason,omitzero"`
		Code    string     `json:"code,omitzero"`
		// HandoffID is the handoff of a decision, and HandoffHash the hash of its bytes.
		HandoffID   string `json:"handoffId,omitzero"`
		HandoffHash string `json:"handoffHash,omitzero"`
	}
	// Ended is the end of a handoff's run.
	Ended struct {
		Status     handoff.Status     `json:"status"`
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
		ResultID   string             `json:"resultId"`
	}
)

// EmitRun emits the events of a whole run: its start, each step, its end. A check that the result
// calls evaluated is started and completed. Other checks are skipped with the result's reason code
// (RunEvents v2, steps of a run).
func EmitRun(p *runlog.Producer, h *handoff.Handoff, r *handoff.Result, start RunStart) error {
	n := emitter{producer: p}
	n.start(h, start)
	n.checks(&r.Evaluation, r.ReasonCode)
	if r.Accepted {
		n.startAttempt(1)
	} else {
		n.step(runevents.StepSkipped, StepApply, skippedPayload{Reason: r.ReasonCode})
	}
	n.endAttempt(r, 1, nil, &apply.AttemptResult{})
	n.endRun(r)
	return n.err
}

// EmitAccepted emits the events of a run whose command a game applies, up to the start of the first
// attempt.
func EmitAccepted(
	p *runlog.Producer, h *handoff.Handoff, e *handoff.Evaluation, start RunStart,
) error {
	n := emitter{producer: p}
	n.start(h, start)
	n.checks(e, "")
	n.startAttempt(1)
	return n.err
}

// emitEnd emits the end v of the last attempt to apply a command, and the end of the run. failed is
// nil if the command was applied.
func emitEnd(
	p *runlog.Producer, r *handoff.Result, attempt int64, failed *apply.Failure, v *apply.AttemptResult,
) error {
	n := emitter{producer: p}
	n.endAttempt(r, attempt, failed, v)
	n.endRun(r)
	return n.err
}

// NextEvents returns the events that the engine may emit after the commit of an attempt, up to the
// commit of the next attempt or of the end. Their eventIds are drawn in advance.
func NextEvents(attempt int64) []runlog.Event {
	return append([]runlog.Event{
		applyEvent(runevents.StepCompleted, attempt), applyEvent(runevents.StepFailed, attempt),
		{EventType: runevents.RunCompleted, LogicalAttemptID: 1},
		{EventType: runevents.RunFailed, LogicalAttemptID: 1},
	}, RetryEvents(attempt)...)
}

// RetryEvents returns the events that begin an attempt after the failure of the previous one.
func RetryEvents(attempt int64) []runlog.Event {
	if attempt == 1 {
		return nil // attempt 1 began with the first commit
	}
	return []runlog.Event{
		applyEvent(runevents.StepFailed, attempt-1), applyEvent(runevents.StepStarted, attempt),
	}
}

// applyEvent names an event of an attempt to apply a command.
func applyEvent(event runevents.EventType, attempt int64) runlog.Event {
	return runlog.Event{EventType: event, StepID: StepApply, LogicalAttemptID: attempt}
}

// The planId and the planVersion of the runs of signals.
const (
	SignalPlan    = "signal"
	SignalVersion = "signal.v1"
)

// EmitSignal emits the events of an operator's signal: a run of its own. refused is the code of a
// refusal, "" for a signal that is accepted.
func EmitSignal(p *runlog.Producer, said SignalPayload, refused string) error {
	n := emitter{producer: p}
	decision, ended := runevents.SignalAccepted, runevents.RunCompleted
	if refused != "" {
		decision, ended = runevents.SignalRejected, runevents.RunFailed
	}
	n.run(runevents.RunStarted, said)
	said.Code = refused
	n.run(decision, said)
	n.run(ended, nil)
	return n.err
}

// emitReleased emits RunResumed for the nth pause. A reason is given if the run goes on before the
// pause has ended.
func emitReleased(p *runlog.Producer, n int64, reason string) error {
	e := runlog.Emission{Type: runevents.RunResumed, Attempt: n}
	if reason != "" {
		e.Payload = resumedPayload{Reason: reason}
	}
	return p.Emit(e)
}

// CancelledLeft is the code of the cancellation of a waiting run whose server is gone.
const CancelledLeft = "SERVER_GONE"

// emitCancelled emits that a waiting run is cancelled. status is the run's status after its earlier
// events. If the run has not started, it is started first, with payload.
func emitCancelled(
	p *runlog.Producer, status runevents.RunStatus, payload any, cancellation Cancellation,
) error {
	n := emitter{producer: p}
	p.ResumeAt(status)
	if status == runevents.RunStatusPending {
		n.run(runevents.RunStarted, payload)
	}
	n.run(runevents.RunCancelled, cancellation)
	return n.err
}

// CancelledInHand is the code of an attempt that a cancellation ended. CancelledByForce is the code
// of a run that was cancelled although a game may have its command.
const (
	CancelledInHand  = "RUN_CANCELLED"
	CancelledByForce = "FORCED"
)

// emitCancelledInHand emits that an attempt is given up, and its run cancelled.
func emitCancelledInHand(p *runlog.Producer, attempt int64, cancellation Cancellation) error {
	n := emitter{producer: p}
	message := "An operator cancelled the run; no request for the command has reached a game."
	if cancellation.Code == CancelledByForce {
		message = "An operator cancelled the run by force; whether a game has applied the " +
			"command is not known."
	}
	n.failAttempt(attempt, stepError{Code: CancelledInHand, Message: message}, time.Time{})
	n.run(runevents.RunCancelled, cancellation)
	return n.err
}

// emitResumed continues a pending handoff's run after the record of the previous attempt. It emits
// the failure of that attempt and, if started is set, the start of the present one. p must have
// emitted nothing yet.
func emitResumed(p *runlog.Producer, pending *apply.Pending, started bool) error {
	before := max(pending.Attempt-1, 1)
	p.ResumeAt(runevents.RunStatusRunning, applyEvent(runevents.StepStarted, before))
	p.StartBatch(pending.Emitted + 1)
	p.UseIDs(pending.EventIDs)
	switch {
	case pending.Attempt == before:
		return nil
	case pending.LastFailure == nil:
		return fmt.Errorf("machine: attempt %d without the end of the one before", pending.Attempt)
	}
	n := emitter{producer: p}
	n.failAttempt(before, newStepError(pending.LastFailure), pending.LastFailure.At)
	if started {
		n.startAttempt(pending.Attempt)
	}
	return n.err
}

// RunStart is how the events of a run begin.
type RunStart struct {
	// Queued reports that the handoff had to wait for its town (RunQueued), for the time Waited.
	Queued bool
	Waited time.Duration
	// Approval is the approval of the handoff; nil if it needed none.
	Approval *Approval
	// Retry is the run that this one retries; nil if none.
	Retry *RetryRequest

	// status is the status of a run that was recorded while its handoff waited; "" if it was not. The run
	// is PENDING (RunQueued), or PAUSED: it has started.
	status runevents.RunStatus
}

// emitter emits until the first error, which it keeps.
type emitter struct {
	producer *runlog.Producer
	err      error
}

func (n *emitter) emit(e runlog.Emission) {
	if n.err == nil {
		n.err = n.producer.Emit(e)
	}
}

func (n *emitter) run(event runevents.EventType, payload any) {
	n.emit(runlog.Emission{Type: event, Payload: payload})
}

func (n *emitter) step(event runevents.EventType, step string, payload any) {
	n.emit(runlog.Emission{Type: event, StepID: step, Payload: payload})
}

func (n *emitter) startAttempt(attempt int64) {
	n.emit(runlog.Emission{Type: runevents.StepStarted, StepID: StepApply, Attempt: attempt})
}

// failAttempt emits the failure of an attempt. at is when it failed; zero for now.
func (n *emitter) failAttempt(attempt int64, failed stepError, at time.Time) {
	n.emit(runlog.Emission{Type: runevents.StepFailed, StepID: StepApply, Attempt: attempt, At: at,
		Payload: failedPayload{Error: failed}})
}

// start emits the start of a run and, for a retry, that the operator's signal is accepted.
func (n *emitter) start(h *handoff.Handoff, start RunStart) {
	n.startRun(h, start)
	if r := start.Retry; r != nil {
		n.run(runevents.SignalAccepted, SignalPayload{
			Signal: SignalRetry, TownID: h.Proposal.TownID, RunID: r.RunID, ActorID: r.ActorID,
			Reason: r.Reason, HandoffID: h.HandoffID,
		})
	}
}

// startRun emits the start of a run. A run that started before its pause cannot get RunApproved any
// more: its RunResumed names the approver.
func (n *emitter) startRun(h *handoff.Handoff, start RunStart) {
	approval := start.Approval
	switch {
	case start.status == runevents.RunStatusPaused && approval == nil:
		n.run(runevents.RunResumed, nil)
		return
	case start.status == runevents.RunStatusPaused:
		n.emit(runlog.Emission{Type: runevents.RunResumed, At: approval.At,
			Payload: resumedPayload{Approval: approval}})
		return
	case start.status == "" && start.Queued:
		n.emit(queued(n.producer, start, nil))
	}
	if approval != nil {
		n.emit(runlog.Emission{Type: runevents.RunApproved, At: approval.At, Payload: approval})
	}
	n.run(runevents.RunStarted, started(n.producer, h, start.Retry))
}

// queued returns RunQueued, at the time at which the handoff began to wait.
func queued(p *runlog.Producer, start RunStart, payload any) runlog.Emission {
	return runlog.Emission{Type: runevents.RunQueued, At: p.Now().Add(-start.Waited),
		Payload: payload}
}

func started(p *runlog.Producer, h *handoff.Handoff, retry *RetryRequest) startedPayload {
	by := runContext{TriggeredBy: h.Proposal.ActorID}
	if retry != nil {
		by = runContext{TriggeredBy: retry.ActorID, RetryOf: retry.RunID}
	}
	return startedPayload{
		Started: Started{TownID: h.Proposal.TownID, ActorID: h.Proposal.ActorID,
			HandoffID: h.HandoffID, Type: string(h.Proposal.Type), Command: h.Command},
		EngineRunRef: "worldengine:" + p.Run().RunID,
		PlanRef: planRef{URI: "urn:worldengine:" + h.ProposalID,
			SchemaVersion: h.Proposal.SchemaVersion},
		Context: by,
	}
}

func (n *emitter) checks(e *handoff.Evaluation, reason handoff.ReasonCode) {
	n.check(StepDuplicate, e.DuplicateCheck.Evaluated, &e.DuplicateCheck, reason)
	n.check(StepStale, e.StaleCheck.Evaluated, &e.StaleCheck, reason)
	n.check(StepPrecondition, e.Preconditions.Evaluated, &e.Preconditions, reason)
}

func (n *emitter) check(step string, evaluated bool, payload any, reason handoff.ReasonCode) {
	if !evaluated {
		n.step(runevents.StepSkipped, step, skippedPayload{Reason: reason})
		return
	}
	n.step(runevents.StepStarted, step, nil)
	n.step(runevents.StepCompleted, step, payload)
}

// endAttempt ends the attempt to apply the command, if it was accepted.
func (n *emitter) endAttempt(
	r *handoff.Result, attempt int64, failed *apply.Failure, v *apply.AttemptResult,
) {
	switch {
	case r.Executed:
		n.emit(runlog.Emission{Type: runevents.StepCompleted, StepID: StepApply, Attempt: attempt,
			At: v.At, Payload: applied(r.WorldState, v.Artifacts)})
	case r.Accepted:
		if failed == nil {
			failed = &apply.Failure{
				Reason: r.ReasonCode, Message: "The command could not be applied; the town is " +
					"unchanged.",
			}
		}
		n.failAttempt(attempt, newStepError(failed), v.At)
	}
}

func applied(state *handoff.WorldState, left apply.Artifacts) any {
	if left.References == nil && left.LeftOut == 0 {
		return state
	}
	return appliedPayload{*state, left}
}

func (n *emitter) endRun(r *handoff.Result) {
	ended := runevents.RunCompleted
	if r.Accepted && !r.Executed {
		ended = runevents.RunFailed
	}
	n.run(ended, Ended{Status: r.Status, ReasonCode: r.ReasonCode, ResultID: r.ResultID})
}

// newStepError returns the failure of an attempt, in the words of the plugin or the engine.
func newStepError(f *apply.Failure) stepError {
	return stepError{
		Code: cmp.Or(f.Code, string(f.Reason)), Message: f.Message, Retryable: f.Retryable,
	}
}

// Started has the members of a run's start that describe its request, a handoff or a signal. In
// another producer's run they may be missing or wrong.
type Started struct {
	TownID    string `json:"townId"`
	ActorID   string `json:"actorId"`
	HandoffID string `json:"handoffId"`
	Type      string `json:"type"`
	Signal    string `json:"signal,omitzero"`
	Command   string `json:"command"`
}

// ReadStarted returns the request in the start of a run; zero if it cannot be read.
func ReadStarted(run *runevents.Snapshot) (s Started) {
	if json.Unmarshal(run.Metadata.Started, &s) != nil {
		return Started{}
	}
	return s
}

// ReadEnded returns the end of a run; zero if it has none, or it cannot be read.
func ReadEnded(run *runevents.Snapshot) (e Ended) {
	if json.Unmarshal(run.Metadata.Outcome, &e) != nil {
		return Ended{}
	}
	return e
}
