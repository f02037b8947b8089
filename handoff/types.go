package handoff

import (
	"slices"
	"strings"
)

// ProposalType is the kind of command that an agent proposes. The set is closed: another value is
// refused.
type ProposalType string

// The proposal types of proposal.v2.
const (
	AcceptMission   ProposalType = "MAYOR_ACCEPT_MISSION"
	CompleteMission ProposalType = "MISSION_COMPLETE"
	FailMission     ProposalType = "MISSION_FAIL"
	AdvanceProject  ProposalType = "PROJECT_ADVANCE"
	PlanSalvage     ProposalType = "SALVAGE_PLAN"
	TalkToTownsfolk ProposalType = "TOWNSFOLK_TALK"
)

// TypeSpec declares a proposal type. All lists of types come from it: the mapping to commands, the
// command line, the tools of language models, the consoles of games, and by worldengine/internal/gen the
// schemas, the JavaScript client, the console and the docs.
type TypeSpec struct {
	Type ProposalType
	// Name is a short name for command lines; with spaces for dashes it is a label for people.
	Name string
	// Verb is the beginning of the command: `<verb> <townId> <argument>`.
	Verb string
	// Does is the effect, for people and language models.
	Does string
	// Story is the sentence of the town's chronicle about an executed command, with {actor},
	// {argument}, and {title} for the name of the Target.
	Story string
	// Argument is the name of the one member of args, and Means its description.
	Argument, Means string
	// Values are all values of the argument; nil if it is the id of a Target.
	Values []string
	// Target is the part of a town whose id the argument is.
	Target Target
	// Preconditions are the reference agent's; see ProposalType.Preconditions.
	Preconditions []Precondition
}

// Target is a part of a town that a command can be about.
type Target string

// The targets.
const (
	SideQuest     Target = "sideQuest" // a side quest, if no mission is active
	ActiveMission Target = "mission"
	Project       Target = "project"
)

// argument stands for the argument of the proposal in the preconditions of a TypeSpec.
const argument = "{argument}"

// proposalTypes has the types in alphabetical order of their values.
var proposalTypes = []TypeSpec{
	{
		Type: AcceptMission, Name: "accept-mission", Verb: "mission accept",
		Does:     "turns a side quest into the mission, if there is none",
		Story:    "{actor} accepted the mission {title}.",
		Argument: "missionId", Means: "The id of the side quest that becomes the mission.",
		Target:        SideQuest,
		Preconditions: []Precondition{{Kind: MissionAbsent}, {Kind: SideQuestExists, TargetID: argument}},
	},
	{
		Type: CompleteMission, Name: "complete-mission", Verb: "mission complete",
		Does:     "ends the mission, and adds to hope",
		Story:    "The mission {title} is complete.",
		Argument: "missionId", Means: "The id of the mission, which is complete.",
		Target:        ActiveMission,
		Preconditions: []Precondition{{Kind: MissionActive, TargetID: argument}},
	},
	{
		Type: FailMission, Name: "fail-mission", Verb: "mission fail",
		Does:     "ends the mission, and adds to dread",
		Story:    "The mission {title} has failed.",
		Argument: "missionId", Means: "The id of the mission, which has failed.",
		Target:        ActiveMission,
		Preconditions: []Precondition{{Kind: MissionActive, TargetID: argument}},
	},
	{
		Type: AdvanceProject, Name: "advance-project", Verb: "project advance",
		Does:     "advances a project, unless it is blocked or complete",
		Story:    "{actor} advanced the {title}.",
		Argument: "projectId", Means: "The id of the project to advance.",
		Target:        Project,
		Preconditions: []Precondition{{Kind: ProjectExists, TargetID: argument}},
	},
	{
		Type: PlanSalvage, Name: "salvage", Verb: "salvage initiate",
		Does:     "takes off scarcity, dread, or a little of both",
		Story:    "{actor} began a {argument} salvage.",
		Argument: "focus", Means: "The pressure that the salvage relieves.",
		Values:        []string{"scarcity", "dread", "general"},
		Preconditions: []Precondition{{Kind: SalvageFocusSupported, Expected: argument}},
	},
	{
		Type: TalkToTownsfolk, Name: "talk", Verb: "townsfolk talk",
		Does:     "adds to hope",
		Story:    "{actor} gave the townsfolk a {argument} talk.",
		Argument: "talkType", Means: "The kind of talk.",
		Values:        []string{"morale-boost", "casual"},
		Preconditions: []Precondition{{Kind: TalkTypeSupported, Expected: argument}},
	},
}

// ProposalTypes returns the known types in alphabetical order.
func ProposalTypes() []ProposalType {
	types := make([]ProposalType, len(proposalTypes))
	for i := range proposalTypes {
		types[i] = proposalTypes[i].Type
	}
	return types
}

// ProposalTypeNamed returns the type with a value or a short name, in any case.
func ProposalTypeNamed(name string) (ProposalType, bool) {
	for i := range proposalTypes {
		spec := &proposalTypes[i]
		if strings.EqualFold(name, string(spec.Type)) || strings.EqualFold(name, spec.Name) {
			return spec.Type, true
		}
	}
	return "", false
}

// Spec returns the declaration of t, which callers must not change; the zero TypeSpec if t is
// unknown.
func (t ProposalType) Spec() TypeSpec {
	for i := range proposalTypes {
		if proposalTypes[i].Type == t {
			return proposalTypes[i]
		}
	}
	return TypeSpec{}
}

// ArgumentName returns the name of the one member of args; "" for an unknown type.
func (t ProposalType) ArgumentName() string { return t.Spec().Argument }

// Preconditions returns the preconditions that the reference agent gives for this type and
// argument.
func (t ProposalType) Preconditions(value string) []Precondition {
	list := slices.Clone(t.Spec().Preconditions)
	for i := range list {
		if list[i].TargetID == argument {
			list[i].TargetID = value
		}
		if list[i].Expected == argument {
			list[i].Expected = value
		}
	}
	return list
}
