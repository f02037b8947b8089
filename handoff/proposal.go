package handoff

import "worldengine/schemas"

// Proposal is a proposal.v2, as an agent selected it. Its further members are tolerated on the wire
// and dropped.
type Proposal struct {
	SchemaVersion string `json:"schemaVersion"` // ProposalVersion
	// ProposalID is proposal_ and 64 lower-case hex digits. Each agent derives it in its own way.
	ProposalID string `json:"proposalId"`
	// SnapshotHash is the Hash, 64 lower-case hex digits, of the canonical snapshot that the agent decided on.
	SnapshotHash string `json:"snapshotHash"`
	// DecisionEpoch is the day of that snapshot, from 0 to 2^53-1.
	DecisionEpoch int64        `json:"decisionEpoch"`
	Type          ProposalType `json:"type"`
	ActorID       string       `json:"actorId"`  // the agent, not empty
	TownID        string       `json:"townId"`   // any text, not empty
	Priority      float64      `json:"priority"` // from 0 to 1
	Reason        string       `json:"reason"`   // a sentence for people, not empty
	ReasonTags    []string     `json:"reasonTags"`
	// Args has exactly one member, Type.ArgumentName.
	Args          map[string]string `json:"args"`
	Preconditions []Precondition    `json:"preconditions,omitempty"`
}

// Argument returns the value of the proposal's one argument: a mission, project, focus or talk
// type. It never comes from parsing a command.
func (p *Proposal) Argument() string { return p.Args[p.Type.ArgumentName()] }

// Command returns the command that the proposal maps to, byte for byte.
func (p *Proposal) Command() string {
	return p.Type.Spec().Verb + " " + p.TownID + " " + p.Argument()
}

// DeriveProposalID returns `proposal_` + Hash of {actorId, townId, type, args, priority,
// decisionEpoch, snapshotHash}, which is the reference agent's name of a proposal. The engine never
// checks it, since other agents choose other names.
func (p *Proposal) DeriveProposalID() string {
	args := make(map[string]any, len(p.Args))
	for name, value := range p.Args {
		args[name] = value
	}
	return "proposal_" + Hash(AppendCanonical(nil, map[string]any{
		"actorId": p.ActorID, "townId": p.TownID, "type": string(p.Type), "args": args,
		"priority": p.Priority, "decisionEpoch": p.DecisionEpoch, "snapshotHash": p.SnapshotHash,
	}))
}

// Precondition is one advisory precondition, which the engine evaluates against the true state.
// TargetID and Field are "" if absent; Expected is a string, float64, bool, or nil if null or
// absent.
type Precondition struct {
	Kind     PreconditionKind `json:"kind"`
	TargetID string           `json:"targetId,omitempty"`
	Field    string           `json:"field,omitempty"`
	Expected any              `json:"expected,omitzero"` // an empty string is a value
}

// PreconditionKind is the condition that a precondition states. An unknown kind is valid on the
// wire and fails when it is evaluated.
type PreconditionKind string

// The kinds that agents emit, and (from MissionActive on) the further ones this engine knows.
const (
	// MissionAbsent holds when no mission is active.
	MissionAbsent PreconditionKind = "mission_absent"
	// SideQuestExists holds when the side quest TargetID is on the list.
	SideQuestExists PreconditionKind = "side_quest_exists"
	// ProjectExists holds when the project TargetID exists.
	ProjectExists PreconditionKind = "project_exists"
	// SalvageFocusSupported holds when Expected is a focus that the rules know.
	SalvageFocusSupported PreconditionKind = "salvage_focus_supported"
	// TalkTypeSupported holds when Expected is a talk type that the rules know.
	TalkTypeSupported PreconditionKind = "talk_type_supported"
	// MissionActive holds when a mission is active; with TargetID, when that mission is active.
	MissionActive PreconditionKind = "mission_active"
	// ProjectStatus holds when the project TargetID has the status Expected.
	ProjectStatus PreconditionKind = "project_status"
	// PressureAtLeast holds when the pressure Field is at least the number Expected.
	PressureAtLeast PreconditionKind = "pressure_at_least"
	// PressureAtMost holds when the pressure Field is at most the number Expected.
	PressureAtMost PreconditionKind = "pressure_at_most"
	// TownExists holds when the handoff's town exists; with TargetID, when it is that town.
	TownExists PreconditionKind = "town_exists"
	// Approval is the kind in the failure of a handoff that a person has to approve. No
	// precondition of a proposal may have this kind.
	Approval PreconditionKind = "approval"
)

func readProposal(tree map[string]any) Proposal {
	p := Proposal{
		SchemaVersion: text(tree, "schemaVersion"),
		ProposalID:    text(tree, "proposalId"),
		SnapshotHash:  text(tree, "snapshotHash"),
		DecisionEpoch: integer(tree, "decisionEpoch"),
		Type:          ProposalType(text(tree, "type")),
		ActorID:       text(tree, "actorId"),
		TownID:        text(tree, "townId"),
		Priority:      number(tree, "priority"),
		Reason:        text(tree, "reason"),
		ReasonTags:    []string{},
		Args:          map[string]string{},
		Preconditions: readPreconditions(tree["preconditions"]),
	}
	tags, _ := tree["reasonTags"].([]any)
	for _, tag := range tags {
		text, _ := tag.(string)
		p.ReasonTags = append(p.ReasonTags, text)
	}
	args, _ := tree["args"].(map[string]any)
	for name := range args {
		p.Args[name] = text(args, name)
	}
	return p
}

func readPreconditions(tree any) []Precondition {
	list, _ := tree.([]any)
	preconditions := make([]Precondition, 0, len(list))
	for _, element := range list {
		member, _ := element.(map[string]any)
		preconditions = append(preconditions, Precondition{
			Kind:     PreconditionKind(text(member, "kind")),
			TargetID: text(member, "targetId"),
			Field:    text(member, "field"),
			Expected: member["expected"],
		})
	}
	return preconditions
}

// text, number and integer read a member of a tree; the zero value if the member is absent or breaks its schema.
func text(tree map[string]any, name string) string {
	s, _ := tree[name].(string)
	return s
}

func number(tree map[string]any, name string) float64 {
	n, _ := tree[name].(float64)
	return n
}

func integer(tree map[string]any, name string) int64 { return int64(number(tree, name)) }

// violation returns a violation of a rule beyond the schema.
func violation(message string, path ...any) schemas.Violation {
	return schemas.Violation{Path: schemas.Pointer(path...), Message: message}
}
