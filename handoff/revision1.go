package handoff

import (
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Revision is the form of a result. Both forms are called execution-result.v1, and represent the
// same decision; an engine stores revision 0.
type Revision int

// The revisions of a result.
const (
	// Revision0 is the form of the Execution Handoff Contract: Result.
	Revision0 Revision = 0
	// Revision1 is the form that newer libraries of agents read: Result1.
	Revision1 Revision = 1
)

// Addition has the members of revision 1 that revision 0 lacks.
type Addition struct {
	TownID       string       `json:"-"`
	ActorID      string       `json:"actorId"`
	ProposalType ProposalType `json:"proposalType"`
	// Embodiment is how a game embodied the command, canonical JSON, or nil. It is never
	// authoritative.
	Embodiment jsontext.Value `json:"embodiment,omitzero"`
}

// AdditionOf returns the members of revision 1 that h has, and its result of revision 0 lacks.
func AdditionOf(h *Handoff) Addition {
	return Addition{
		TownID: h.Proposal.TownID, ActorID: h.Proposal.ActorID, ProposalType: h.Proposal.Type,
	}
}

// Result1 is revision 1 of an execution-result.v1: a projection of a Result and its Addition.
type Result1 struct {
	Type          string `json:"type"` // ResultVersion
	SchemaVersion int64  `json:"schemaVersion"`
	ExecutionID   string `json:"executionId"`
	// ResultID equals ExecutionID. It is not the resultId of revision 0.
	ResultID       string       `json:"resultId"`
	HandoffID      string       `json:"handoffId"`
	ProposalID     string       `json:"proposalId"`
	IdempotencyKey string       `json:"idempotencyKey"`
	SnapshotHash   string       `json:"snapshotHash"`
	DecisionEpoch  int64        `json:"decisionEpoch"`
	ActorID        string       `json:"actorId"`
	TownID         string       `json:"townId"`
	ProposalType   ProposalType `json:"proposalType"`
	Command        string       `json:"command"`
	// AuthorityCommands are the commands that were applied: Command if it was executed, else none.
	AuthorityCommands []string       `json:"authorityCommands"`
	Status            Status         `json:"status"`
	Accepted          bool           `json:"accepted"`
	Executed          bool           `json:"executed"`
	ReasonCode        ReasonCode     `json:"reasonCode"`
	Evaluation        Evaluation     `json:"evaluation"`
	WorldState        *WorldState    `json:"worldState,omitempty"`
	Embodiment        jsontext.Value `json:"embodiment,omitzero"`
}

// Revision1 returns revision 1 of the result. duplicateOf is the executionId of the first result,
// or nil if the result is no duplicate.
func (r *Result) Revision1(a Addition, duplicateOf *string) (*Result1, error) {
	embodiment, err := dropBlankHint(a.Embodiment)
	if err != nil {
		return nil, unreadable(schemas.ExecutionResult1, err)
	}
	one := &Result1{
		Type: ResultVersion, SchemaVersion: int64(Revision1),
		HandoffID: r.HandoffID, ProposalID: r.ProposalID, IdempotencyKey: r.IdempotencyKey,
		SnapshotHash: r.SnapshotHash, DecisionEpoch: r.DecisionEpoch,
		ActorID: a.ActorID, TownID: a.TownID, ProposalType: a.ProposalType,
		Command: r.Command, AuthorityCommands: []string{},
		Status: r.Status, Accepted: r.Accepted, Executed: r.Executed, ReasonCode: r.ReasonCode,
		Evaluation: r.Evaluation, WorldState: r.WorldState, Embodiment: embodiment,
	}
	if r.Executed {
		one.AuthorityCommands = []string{r.Command}
	}
	one.Evaluation.DuplicateCheck.DuplicateOf = duplicateOf
	id, err := one.DeriveID()
	if err != nil {
		return nil, err
	}
	one.ExecutionID, one.ResultID = id, id
	return one, nil
}

// dropBlankHint returns an embodiment without a backendHint that has no text, since agents refuse a
// result with such a hint; nil if nothing else is left.
func dropBlankHint(embodiment jsontext.Value) (jsontext.Value, error) {
	if len(embodiment) == 0 || embodiment.Kind() != '{' {
		return embodiment, nil
	}
	var members map[string]any
	if err := json.Unmarshal(embodiment, &members); err != nil {
		return nil, err
	}
	hint, is := members["backendHint"].(string)
	blank := func(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' }
	if !is || strings.TrimFunc(hint, blank) != "" {
		return embodiment, nil
	}
	delete(members, "backendHint")
	if len(members) == 0 {
		return nil, nil
	}
	return AppendCanonical(nil, members), nil
}

// unhashed1 are the members of revision 1 that its id does not cover.
var unhashed1 = []string{
	"executionId", "resultId", "idempotencyKey", "snapshotHash", "decisionEpoch",
}

// DeriveID returns `result_` + Hash of all members but executionId, resultId, idempotencyKey,
// snapshotHash and decisionEpoch, without worldState and embodiment if the result has none. It
// fails if the embodiment is no JSON.
func (r *Result1) DeriveID() (string, error) {
	data, err := r.MarshalWire()
	if err != nil {
		return "", err
	}
	tree, err := schemas.Decode(data, schemas.Limits{Bytes: len(data) + 1})
	if err != nil {
		return "", err
	}
	hashed := tree.(map[string]any)
	for _, name := range unhashed1 {
		delete(hashed, name)
	}
	return "result_" + Hash(AppendCanonical(nil, hashed)), nil
}

// MarshalWire returns the result as compact JSON, members in the order of the agents' library.
func (r *Result1) MarshalWire() ([]byte, error) { return marshal(r) }

// ParseResult1 reads and verifies a result of revision 1, as ParseResult does of revision 0.
func ParseResult1(data []byte, limits schemas.Limits) (*Result1, error) {
	r := new(Result1)
	if err := Read(schemas.ExecutionResult1, data, limits, r); err != nil {
		return nil, err
	}
	want, err := r.DeriveID()
	if err != nil {
		return nil, unreadable(schemas.ExecutionResult1, err)
	}
	var found []schemas.Violation
	if r.ExecutionID != want {
		found = append(found, violation("must be the hash of all members but executionId, "+
			"resultId, idempotencyKey, snapshotHash and decisionEpoch, "+want, "executionId"))
	}
	if r.ResultID != r.ExecutionID {
		found = append(found, violation("must equal /executionId", "resultId"))
	}
	if r.IdempotencyKey != r.ProposalID {
		found = append(found, violation("must equal /proposalId", "idempotencyKey"))
	}
	if found != nil {
		return nil, schemas.Invalid(schemas.ExecutionResult1, found...)
	}
	return r, nil
}
