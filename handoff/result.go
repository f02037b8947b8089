package handoff

import (
	"strconv"

	"worldengine/schemas"
)

// ResultVersion is the schemaVersion of every result.
const ResultVersion = "execution-result.v1"

// Status is how a handoff ended. The set is closed.
type Status string

// The five statuses, with the booleans that each one requires.
const (
	// Executed: accepted and executed; the town has moved on.
	Executed Status = "executed"
	// Failed: accepted, but the command could not be applied; the town is unchanged.
	Failed Status = "failed"
	// Rejected: refused because the town is unknown, a precondition fails, or an approval is
	// missing.
	Rejected Status = "rejected"
	// Stale: refused because the town has changed since the proposal was made.
	Stale Status = "stale"
	// Duplicate: refused because the key was accepted before.
	Duplicate Status = "duplicate"
)

// Statuses returns the five statuses in the order of the contract.
func Statuses() []Status { return []Status{Executed, Rejected, Stale, Duplicate, Failed} }

// Accepted reports whether the status requires accepted: true. An accepted handoff consumes its
// key.
func (s Status) Accepted() bool { return s == Executed || s == Failed }

// ReasonCode is the reason of a status. The engine chooses the codes; these are the ones that come
// neither from the rules nor from a plugin.
type ReasonCode string

// The reason codes of the outcome table.
const (
	ReasonExecuted           ReasonCode = "EXECUTED"
	ReasonDuplicate          ReasonCode = "DUPLICATE_HANDOFF"
	ReasonKeyReused          ReasonCode = "IDEMPOTENCY_KEY_REUSED"
	ReasonUnknownTown        ReasonCode = "UNKNOWN_TOWN"
	ReasonStaleEpoch         ReasonCode = "STALE_DECISION_EPOCH"
	ReasonStaleHash          ReasonCode = "STALE_SNAPSHOT_HASH"
	ReasonPreconditionFailed ReasonCode = "PRECONDITION_FAILED"
	// The proposal's type requires a person's approval: the handoff is not approved yet, was
	// denied, or cannot wait because too many do.
	ReasonApprovalRequired ReasonCode = "APPROVAL_REQUIRED"
	ReasonApprovalDenied   ReasonCode = "APPROVAL_DENIED"
	ReasonApprovalsFull    ReasonCode = "APPROVALS_FULL"
	ReasonApprovalTooLarge ReasonCode = "APPROVAL_TOO_LARGE"
)

// Outcome is the engine's decision about a handoff; NewResult makes its result.
type Outcome struct {
	Status     Status
	ReasonCode ReasonCode
	Evaluation Evaluation
	WorldState *WorldState // nil when the result has none
}

// Evaluation reports the three checks. A check that was not evaluated is all zero: false, no
// failures, null actuals.
type Evaluation struct {
	Preconditions  PreconditionReport `json:"preconditions"`
	StaleCheck     StaleReport        `json:"staleCheck"`
	DuplicateCheck DuplicateReport    `json:"duplicateCheck"`
}

// PreconditionReport reports the preconditions; Failures are in the order of the preconditions.
type PreconditionReport struct {
	Evaluated bool      `json:"evaluated"`
	Passed    bool      `json:"passed"`
	Failures  []Failure `json:"failures"`
}

// Failure is one precondition that does not hold; both members are non-empty.
type Failure struct {
	Kind   PreconditionKind `json:"kind"`
	Detail string           `json:"detail"`
}

// StaleReport reports the true state with which the handoff was compared; members are nil if not
// evaluated.
type StaleReport struct {
	Evaluated           bool    `json:"evaluated"`
	Passed              bool    `json:"passed"`
	ActualSnapshotHash  *string `json:"actualSnapshotHash"`
	ActualDecisionEpoch *int64  `json:"actualDecisionEpoch"`
}

// DuplicateReport reports the key; DuplicateOf is the resultId of the first accepted result.
type DuplicateReport struct {
	Evaluated   bool    `json:"evaluated"`
	Duplicate   bool    `json:"duplicate"`
	DuplicateOf *string `json:"duplicateOf"`
}

// WorldState is the state after an accepted handoff: moved on, or unchanged if it failed. The contract allows null for
// both members; this engine sets both.
type WorldState struct {
	SnapshotHash  *string `json:"postExecutionSnapshotHash"`
	DecisionEpoch *int64  `json:"postExecutionDecisionEpoch"`
}

// Result is an execution-result.v1. It has no time, no run id and nothing else that differs between
// two machines that decide the same.
type Result struct {
	SchemaVersion string `json:"schemaVersion"` // ResultVersion
	// ResultID is result_ and the Hash of {handoffId, status, accepted, executed, reasonCode, evaluation, worldState}.
	ResultID string `json:"resultId"`
	// The members from HandoffID to Command are the handoff's.
	HandoffID      string     `json:"handoffId"`
	ProposalID     string     `json:"proposalId"`
	IdempotencyKey string     `json:"idempotencyKey"`
	SnapshotHash   string     `json:"snapshotHash"`
	DecisionEpoch  int64      `json:"decisionEpoch"`
	Command        string     `json:"command"`
	Status         Status     `json:"status"`
	Accepted       bool       `json:"accepted"` // Executed or Failed
	Executed       bool       `json:"executed"`
	ReasonCode     ReasonCode `json:"reasonCode"`
	Evaluation     Evaluation `json:"evaluation"`
	// WorldState is nil unless the handoff was accepted.
	WorldState *WorldState `json:"worldState,omitempty"`
}

// NewResult makes the result that answers h with outcome: the echoes, the booleans of the status,
// and the id.
func NewResult(h *Handoff, outcome Outcome) *Result {
	r := &Result{
		SchemaVersion:  ResultVersion,
		HandoffID:      h.HandoffID,
		ProposalID:     h.ProposalID,
		IdempotencyKey: h.IdempotencyKey,
		SnapshotHash:   h.SnapshotHash,
		DecisionEpoch:  h.DecisionEpoch,
		Command:        h.Command,
		Status:         outcome.Status,
		Accepted:       outcome.Status.Accepted(),
		Executed:       outcome.Status == Executed,
		ReasonCode:     outcome.ReasonCode,
		Evaluation:     outcome.Evaluation,
		WorldState:     outcome.WorldState,
	}
	r.ResultID = r.DeriveID()
	return r
}

// ParseResult reads and verifies a result: its schema, and that its id is its hash. The error is a
// *schemas.ValidationError with every violation and its JSON path.
func ParseResult(data []byte, limits schemas.Limits) (*Result, error) {
	r := new(Result)
	if err := Read(schemas.ExecutionResult, data, limits, r); err != nil {
		return nil, err
	}
	if want := r.DeriveID(); r.ResultID != want {
		return nil, schemas.Invalid(schemas.ExecutionResult, violation("must be the hash of "+
			"{handoffId, status, accepted, executed, reasonCode, evaluation, worldState}, "+
			want, "resultId"))
	}
	return r, nil
}

// DeriveID returns `result_` + Hash of {handoffId, status, accepted, executed, reasonCode,
// evaluation, worldState}, without worldState if the result has none.
func (r *Result) DeriveID() string {
	return "result_" + Hash(r.appendPreimage(make([]byte, 0, 1024)))
}

// appendPreimage writes the canonical JSON of the id's members: in sorted order, by hand, since
// every handoff needs it. A test compares it with AppendCanonical.
func (r *Result) appendPreimage(b []byte) []byte {
	e := &r.Evaluation
	b = appendBool(b, `{"accepted":`, r.Accepted)
	b = appendBool(b, `,"evaluation":{"duplicateCheck":{"duplicate":`, e.DuplicateCheck.Duplicate)
	b = appendText(b, `,"duplicateOf":`, e.DuplicateCheck.DuplicateOf)
	b = appendBool(b, `,"evaluated":`, e.DuplicateCheck.Evaluated)
	b = appendBool(b, `},"preconditions":{"evaluated":`, e.Preconditions.Evaluated)
	b = append(b, `,"failures":[`...)
	for i, f := range e.Preconditions.Failures {
		if i > 0 {
			b = append(b, ',')
		}
		kind := string(f.Kind)
		b = appendText(b, `{"detail":`, &f.Detail)
		b = append(appendText(b, `,"kind":`, &kind), '}')
	}
	b = appendBool(b, `],"passed":`, e.Preconditions.Passed)
	b = appendEpoch(b, `},"staleCheck":{"actualDecisionEpoch":`, e.StaleCheck.ActualDecisionEpoch)
	b = appendText(b, `,"actualSnapshotHash":`, e.StaleCheck.ActualSnapshotHash)
	b = appendBool(b, `,"evaluated":`, e.StaleCheck.Evaluated)
	b = appendBool(b, `,"passed":`, e.StaleCheck.Passed)
	b = appendBool(b, `}},"executed":`, r.Executed)
	status, reason := string(r.Status), string(r.ReasonCode)
	b = appendText(b, `,"handoffId":`, &r.HandoffID)
	b = appendText(b, `,"reasonCode":`, &reason)
	b = appendText(b, `,"status":`, &status)
	if w := r.WorldState; w != nil {
		b = appendEpoch(b, `,"worldState":{"postExecutionDecisionEpoch":`, w.DecisionEpoch)
		b = append(appendText(b, `,"postExecutionSnapshotHash":`, w.SnapshotHash), '}')
	}
	return append(b, '}')
}

func appendBool(b []byte, before string, v bool) []byte {
	return strconv.AppendBool(append(b, before...), v)
}

func appendText(b []byte, before string, v *string) []byte {
	b = append(b, before...)
	if v == nil {
		return append(b, "null"...)
	}
	return AppendString(b, *v)
}

func appendEpoch(b []byte, before string, v *int64) []byte {
	b = append(b, before...)
	if v == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, *v, 10)
}
