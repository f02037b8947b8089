package handoff

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"worldengine/schemas"
)

// SchemaVersion is the only schemaVersion of a handoff that this engine accepts.
const SchemaVersion = "execution-handoff.v1"

// ProposalVersion is the only schemaVersion of a proposal inside a handoff.
const ProposalVersion = "proposal.v2"

// Handoff is a valid execution-handoff.v1: it fits its schema, its copies of the proposal's members
// agree with the proposal, its id is its hash, and its command is the mapping of its proposal.
// Parse and New make it. It is immutable, so goroutines may share it. (Execution Handoff Contract, Field Semantics.)
type Handoff struct {
	SchemaVersion string `json:"schemaVersion"` // SchemaVersion
	// HandoffID is handoff_ and the Hash of {proposalId, command}.
	HandoffID  string `json:"handoffId"`
	Advisory   bool   `json:"advisory"` // true
	ProposalID string `json:"proposalId"`
	// IdempotencyKey is the ProposalID. A town accepts it once.
	IdempotencyKey string   `json:"idempotencyKey"`
	SnapshotHash   string   `json:"snapshotHash"`  // the proposal's
	DecisionEpoch  int64    `json:"decisionEpoch"` // the proposal's
	Proposal       Proposal `json:"proposal"`
	// Command is Proposal.Command; nobody parses it.
	Command      string       `json:"command"`
	Requirements Requirements `json:"executionRequirements"`
}

// Requirements are the conditions on the town's true state.
type Requirements struct {
	ExpectedSnapshotHash  string         `json:"expectedSnapshotHash"`  // the proposal's SnapshotHash
	ExpectedDecisionEpoch int64          `json:"expectedDecisionEpoch"` // the proposal's DecisionEpoch
	Preconditions         []Precondition `json:"preconditions"`
}

// Parse reads one handoff from data. The error is a *schemas.ValidationError with every violation
// and its JSON path; a handoff that Parse refuses must not be recorded against a key.
func Parse(data []byte, limits schemas.Limits) (*Handoff, error) {
	tree, err := schemas.DecodeNamed(schemas.ExecutionHandoff, data, limits)
	if err != nil {
		return nil, err
	}
	return ParseTree(tree)
}

// ParseTree is Parse for a payload that schemas.Decode has already read, such as a fixture's
// handoff.
func ParseTree(tree any) (*Handoff, error) {
	if err := schemas.Validate(schemas.ExecutionHandoff, tree); err != nil {
		return nil, withDisagreements(explainTypes(err), tree)
	}
	h := readHandoff(tree.(map[string]any))
	if found := h.disagreements(); len(found) > 0 {
		violations := make([]schemas.Violation, len(found))
		for i := range found {
			violations[i] = found[i].Violation
		}
		return nil, schemas.Invalid(schemas.ExecutionHandoff, violations...)
	}
	return h, nil
}

// explainTypes appends the page about other types to an error about a proposal's type.
func explainTypes(err error) error {
	if invalid, ok := errors.AsType[*schemas.ValidationError](err); ok {
		for i := range invalid.Violations {
			v := &invalid.Violations[i]
			if v.Path == "/proposal/type" && strings.HasPrefix(v.Message, "must be one of") {
				v.Message += "; docs/agents.md explains the types of the JavaScript engine"
			}
		}
	}
	return err
}

// readHandoff reads a tree by hand, and leaves out members that break the schema. Writing the tree as JSON
// and unmarshalling it would make Parse take half as long again.
func readHandoff(tree map[string]any) *Handoff {
	requirements, _ := tree["executionRequirements"].(map[string]any)
	proposal, _ := tree["proposal"].(map[string]any)
	return &Handoff{
		SchemaVersion:  SchemaVersion,
		HandoffID:      text(tree, "handoffId"),
		Advisory:       true,
		ProposalID:     text(tree, "proposalId"),
		IdempotencyKey: text(tree, "idempotencyKey"),
		SnapshotHash:   text(tree, "snapshotHash"),
		DecisionEpoch:  integer(tree, "decisionEpoch"),
		Proposal:       readProposal(proposal),
		Command:        text(tree, "command"),
		Requirements: Requirements{
			ExpectedSnapshotHash:  text(requirements, "expectedSnapshotHash"),
			ExpectedDecisionEpoch: integer(requirements, "expectedDecisionEpoch"),
			Preconditions:         readPreconditions(requirements["preconditions"]),
		},
	}
}

// New makes the handoff of a proposal: it derives the echoes, the command, the ids and the
// requirements. DeriveProposalID gives an empty ProposalID its value. For a bad proposal the error
// is Parse's.
func New(p Proposal) (*Handoff, error) {
	if math.IsNaN(p.Priority) || math.IsInf(p.Priority, 0) {
		return nil, schemas.Invalid(schemas.ExecutionHandoff,
			violation("must be a finite number", "proposal", "priority"))
	}
	p.SchemaVersion = ProposalVersion
	if p.ProposalID == "" {
		p.ProposalID = p.DeriveProposalID()
	}
	command := p.Command()
	h := &Handoff{
		SchemaVersion:  SchemaVersion,
		HandoffID:      deriveHandoffID(p.ProposalID, command),
		Advisory:       true,
		ProposalID:     p.ProposalID,
		IdempotencyKey: p.ProposalID,
		SnapshotHash:   p.SnapshotHash,
		DecisionEpoch:  p.DecisionEpoch,
		Proposal:       p,
		Command:        command,
		Requirements: Requirements{
			ExpectedSnapshotHash:  p.SnapshotHash,
			ExpectedDecisionEpoch: p.DecisionEpoch,
			Preconditions:         append([]Precondition{}, p.Preconditions...),
		},
	}
	data, err := h.MarshalWire()
	if err != nil {
		return nil, fmt.Errorf("handoff: a new handoff cannot be written: %w", err)
	}
	return Parse(data, schemas.Limits{})
}

// Preconditions returns the preconditions to evaluate, in order: first the requirements'
// preconditions, then the proposal's that the requirements lack.
func (h *Handoff) Preconditions() []Precondition {
	all := h.Requirements.Preconditions
	for _, p := range h.Proposal.Preconditions {
		if !slices.Contains(all, p) {
			all = append(slices.Clip(all), p)
		}
	}
	return all
}

// disagreements returns the violations that no schema sees: echoes that differ, an id that is not
// its hash, a command that is not the mapping.
func (h *Handoff) disagreements() (found []disagreement) {
	differ := func(got, want any, source string, path ...any) {
		if got != want {
			found = append(found, disagreement{violation("must equal "+source, path...), []string{source}})
		}
	}
	p, r := &h.Proposal, &h.Requirements
	differ(p.ProposalID, h.ProposalID, "/proposalId", "proposal", "proposalId")
	differ(h.IdempotencyKey, h.ProposalID, "/proposalId", "idempotencyKey")
	differ(p.SnapshotHash, h.SnapshotHash, "/snapshotHash", "proposal", "snapshotHash")
	differ(r.ExpectedSnapshotHash, h.SnapshotHash, "/snapshotHash",
		"executionRequirements", "expectedSnapshotHash")
	differ(p.DecisionEpoch, h.DecisionEpoch, "/decisionEpoch", "proposal", "decisionEpoch")
	differ(r.ExpectedDecisionEpoch, h.DecisionEpoch, "/decisionEpoch",
		"executionRequirements", "expectedDecisionEpoch")
	if want := p.Command(); h.Command != want {
		found = append(found, disagreement{violation(fmt.Sprintf(
			"must be the mapping of the proposal's type and args, %q", want), "command"),
			[]string{"/proposal/type", "/proposal/args", "/proposal/townId"}})
	}
	if want := deriveHandoffID(h.ProposalID, h.Command); h.HandoffID != want {
		found = append(found, disagreement{violation("must be the hash of {proposalId, command}, "+
			want, "handoffId"), []string{"/proposalId", "/command"}})
	}
	return found
}

// disagreement is a violation of a rule between members; sources are the paths of the other members.
type disagreement struct {
	schemas.Violation
	sources []string
}

// withDisagreements adds the disagreements of members that fit the schema to the schema's violations, so that
// the sender sees all at once.
func withDisagreements(err error, tree any) error {
	object, isObject := tree.(map[string]any)
	invalid, isInvalid := errors.AsType[*schemas.ValidationError](err)
	if !isObject || !isInvalid {
		return err
	}
	all := invalid.Violations
	for _, d := range readHandoff(object).disagreements() {
		touches := func(v schemas.Violation) bool {
			return slices.ContainsFunc(append(d.sources, d.Path), func(path string) bool {
				return v.Path == path || strings.HasPrefix(v.Path, path+"/") || strings.HasPrefix(path, v.Path+"/")
			})
		}
		if !slices.ContainsFunc(invalid.Violations, touches) {
			all = append(all, d.Violation)
		}
	}
	slices.SortFunc(all, func(a, b schemas.Violation) int { return cmp.Compare(a.Path, b.Path) })
	return schemas.Invalid(schemas.ExecutionHandoff, all...)
}

// deriveHandoffID returns `handoff_` + Hash of {command, proposalId}.
func deriveHandoffID(proposalID, command string) string {
	preimage := append(make([]byte, 0, 256), `{"command":`...)
	preimage = append(AppendString(preimage, command), `,"proposalId":`...)
	preimage = append(AppendString(preimage, proposalID), '}')
	return "handoff_" + Hash(preimage)
}
