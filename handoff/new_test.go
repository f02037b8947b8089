package handoff_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
)

func TestProposal_Command(t *testing.T) {
	t.Parallel()
	for kind, want := range map[handoff.ProposalType][2]string{
		handoff.AcceptMission:   {"missionId", "mission accept Town 1 a b"},
		handoff.CompleteMission: {"missionId", "mission complete Town 1 a b"},
		handoff.FailMission:     {"missionId", "mission fail Town 1 a b"},
		handoff.AdvanceProject:  {"projectId", "project advance Town 1 a b"},
		handoff.PlanSalvage:     {"focus", "salvage initiate Town 1 a b"},
		handoff.TalkToTownsfolk: {"talkType", "townsfolk talk Town 1 a b"},
	} {
		p := handoff.Proposal{Type: kind, TownID: "Town 1", Args: map[string]string{want[0]: "a b"}}
		require.Equal(t, want, [2]string{kind.ArgumentName(), p.Command()})
		require.Equal(t, "a b", p.Argument())
	}
}

func TestProposalTypeNamed(t *testing.T) {
	t.Parallel()
	for _, known := range handoff.ProposalTypes() {
		for _, name := range []string{string(known), strings.ToLower(string(known)), known.Spec().Name} {
			found, ok := handoff.ProposalTypeNamed(name)
			require.True(t, ok, name)
			require.Equal(t, known, found)
		}
	}
	_, ok := handoff.ProposalTypeNamed("")
	require.False(t, ok)
	require.Empty(t, handoff.ProposalType("NUKE_TOWN").ArgumentName())
}

func TestProposalType_Preconditions(t *testing.T) {
	t.Parallel()
	require.Equal(t, []handoff.Precondition{
		{Kind: handoff.MissionAbsent}, {Kind: handoff.SideQuestExists, TargetID: "sq-1"},
	}, handoff.AcceptMission.Preconditions("sq-1"))
	require.Equal(t, []handoff.Precondition{
		{Kind: handoff.SalvageFocusSupported, Expected: "dread"},
	}, handoff.PlanSalvage.Preconditions("dread"))
	require.Empty(t, handoff.ProposalType("NUKE_TOWN").Preconditions("x"))
}

// New keeps an agent's own name of the proposal, and writes absent lists as empty ones. The vectors
// prove the rest.
func TestNew(t *testing.T) {
	t.Parallel()
	p := proposal()
	_, err := handoff.New(p)
	require.NoError(t, err)
	require.Equal(t, proposal(), p, "the caller's proposal stays unchanged")
	p.ProposalID = "proposal_" + strings.Repeat("0", 64)
	p.ReasonTags, p.Preconditions = nil, nil
	p.TownID = strings.Repeat("😀", 1024)
	wire := wireOf(t, p)
	require.Contains(t, wire, `"reasonTags":[]`)
	require.Contains(t, wire, `"preconditions":[]`, "the requirements always have them")
	h := parsed(t, []byte(wire))
	require.Equal(t, p.ProposalID, h.IdempotencyKey)
	require.Empty(t, h.Requirements.Preconditions)
	require.Equal(t, "project advance "+p.TownID+" wall-perimeter", h.Command)
}

// New refuses a proposal as Parse would.
func TestNew_Refused(t *testing.T) {
	t.Parallel()
	for path, changes := range map[string][]func(*handoff.Proposal){
		"/proposal/type":       {func(p *handoff.Proposal) { p.Type = "NUKE_TOWN" }},
		"/proposal/args/more":  {func(p *handoff.Proposal) { p.Args["more"] = "x" }},
		"/proposal/proposalId": {func(p *handoff.Proposal) { p.ProposalID = "proposal_1" }},
		"/proposal/preconditions/0/expected": {
			func(p *handoff.Proposal) { p.Preconditions[0].Expected = []string{"a list"} }},
		"/proposal/priority": {
			func(p *handoff.Proposal) { p.Priority = 1.5 },
			func(p *handoff.Proposal) { p.Priority = math.NaN() },
			func(p *handoff.Proposal) { p.Priority = math.Inf(-1) }},
	} {
		for _, change := range changes {
			p := proposal()
			change(&p)
			_, err := handoff.New(p)
			require.Contains(t, refusal(t, err), path)
		}
	}
	for _, change := range []func(*handoff.Proposal){
		func(p *handoff.Proposal) { p.TownID = "\xff" },
		func(p *handoff.Proposal) { p.Preconditions[0].Expected = make(chan int) },
	} {
		p := proposal()
		change(&p)
		_, err := handoff.New(p)
		require.ErrorContains(t, err, "a new handoff cannot be written")
	}
}

// Seven members change the id, no others.
func TestProposal_DeriveProposalID(t *testing.T) {
	t.Parallel()
	base := proposal()
	for name, change := range map[string]func(*handoff.Proposal){
		"actorId":       func(p *handoff.Proposal) { p.ActorID = "x" },
		"townId":        func(p *handoff.Proposal) { p.TownID = "x" },
		"type":          func(p *handoff.Proposal) { p.Type = handoff.PlanSalvage },
		"args":          func(p *handoff.Proposal) { p.Args = map[string]string{"projectId": "x"} },
		"priority":      func(p *handoff.Proposal) { p.Priority = 0.81 },
		"decisionEpoch": func(p *handoff.Proposal) { p.DecisionEpoch++ },
		"snapshotHash":  func(p *handoff.Proposal) { p.SnapshotHash = strings.Repeat("0", 64) },
	} {
		p := proposal()
		change(&p)
		require.NotEqual(t, base.DeriveProposalID(), p.DeriveProposalID(), name)
	}
	p := proposal()
	p.ProposalID, p.Reason, p.ReasonTags, p.Preconditions = "x", "x", nil, nil
	require.Equal(t, base.DeriveProposalID(), p.DeriveProposalID())
}
