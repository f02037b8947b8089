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
	for _, row := range []struct {
		kind            handoff.ProposalType
		argument, value string
		want            string
	}{
		{handoff.AcceptMission, "missionId", "sq-1", "mission accept Town 1 sq-1"},
		{handoff.AdvanceProject, "projectId", "wall perimeter",
			"project advance Town 1 wall perimeter"},
		{handoff.PlanSalvage, "focus", "general", "salvage initiate Town 1 general"},
		{handoff.TalkToTownsfolk, "talkType", "morale-boost", "townsfolk talk Town 1 morale-boost"},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			t.Parallel()
			p := proposal()
			p.Type, p.TownID = row.kind, "Town 1"
			p.Args = map[string]string{row.argument: row.value}
			require.Equal(t, row.argument, row.kind.ArgumentName())
			require.Equal(t, row.value, p.Argument())
			require.Equal(t, row.want, p.Command())

			h, err := handoff.New(p)
			require.NoError(t, err)
			require.Equal(t, row.want, h.Command)
			require.Equal(t, handoffID(h.ProposalID, row.want), h.HandoffID)
		})
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

func TestNew(t *testing.T) {
	t.Parallel()
	p := proposal()
	h, err := handoff.New(p)
	require.NoError(t, err)
	require.Equal(t, proposal(), p, "the caller's proposal is left as it is")
	want := p
	want.ProposalID, want.SchemaVersion = p.DeriveProposalID(), "proposal.v2"
	require.Equal(t, &handoff.Handoff{
		SchemaVersion: handoff.SchemaVersion, HandoffID: handoffID(want.ProposalID, p.Command()),
		Advisory: true, ProposalID: want.ProposalID, IdempotencyKey: want.ProposalID,
		SnapshotHash: p.SnapshotHash, DecisionEpoch: p.DecisionEpoch, Proposal: want,
		Command: p.Command(), Requirements: handoff.Requirements{
			ExpectedSnapshotHash: p.SnapshotHash, ExpectedDecisionEpoch: p.DecisionEpoch,
			Preconditions: p.Preconditions,
		},
	}, h)

	p.ProposalID = "proposal_" + strings.Repeat("0", 64) // an agent's own
	p.ReasonTags, p.Preconditions = nil, nil
	p.TownID = strings.Repeat("😀", 1024)
	wire := wireOf(t, p)
	require.Contains(t, wire, `"reasonTags":[]`)
	require.Contains(t, wire, `"preconditions":[]`, "the requirements always have them")
	h = parsed(t, []byte(wire))
	require.Equal(t, p.ProposalID, h.IdempotencyKey)
	require.Empty(t, h.Requirements.Preconditions)
	require.Equal(t, "project advance "+p.TownID+" wall-perimeter", h.Command)
}

// New refuses a proposal as Parse would.
func TestNew_Refused(t *testing.T) {
	t.Parallel()
	for path, spoil := range map[string]func(*handoff.Proposal){
		"/proposal/type":           func(p *handoff.Proposal) { p.Type = "NUKE_TOWN" },
		"/proposal/townId":         func(p *handoff.Proposal) { p.TownID = "" },
		"/proposal/actorId":        func(p *handoff.Proposal) { p.ActorID = "" },
		"/proposal/reason":         func(p *handoff.Proposal) { p.Reason = "" },
		"/proposal/priority":       func(p *handoff.Proposal) { p.Priority = 1.5 },
		"/proposal/snapshotHash":   func(p *handoff.Proposal) { p.SnapshotHash = "ABC" },
		"/proposal/proposalId":     func(p *handoff.Proposal) { p.ProposalID = "proposal_1" },
		"/proposal/decisionEpoch":  func(p *handoff.Proposal) { p.DecisionEpoch = -1 },
		"/proposal/args/projectId": func(p *handoff.Proposal) { p.Args = nil },
		"/proposal/args/more":      func(p *handoff.Proposal) { p.Args["more"] = "x" },
		"/proposal/preconditions/0/kind": func(p *handoff.Proposal) {
			p.Preconditions[0].Kind = ""
		},
		"/proposal/preconditions/0/expected": func(p *handoff.Proposal) {
			p.Preconditions[0].Expected = []string{"a list"}
		},
	} {
		p := proposal()
		spoil(&p)
		_, err := handoff.New(p)
		require.Contains(t, refusal(t, err), path)
	}
	for _, priority := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		p := proposal()
		p.Priority = priority
		_, err := handoff.New(p)
		require.Equal(t, []string{"/proposal/priority"}, refusal(t, err), "%v", priority)
	}
	for _, spoil := range []func(*handoff.Proposal){
		func(p *handoff.Proposal) { p.TownID = "\xff" },
		func(p *handoff.Proposal) { p.Preconditions[0].Expected = make(chan int) },
	} {
		p := proposal()
		spoil(&p)
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
