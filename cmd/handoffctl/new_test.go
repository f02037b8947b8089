package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

func TestNew_LikeTheReferenceAgent(t *testing.T) {
	c := online(t)
	for _, test := range []struct {
		kind, arg, command string
		preconditions      []handoff.Precondition
	}{
		{"accept-mission", "sq-scout-ridge", "mission accept town-threatened sq-scout-ridge",
			[]handoff.Precondition{
				{Kind: handoff.MissionAbsent},
				{Kind: handoff.SideQuestExists, TargetID: "sq-scout-ridge"},
			}},
		{"project_advance", "granary", "project advance town-threatened granary",
			[]handoff.Precondition{
				{Kind: handoff.ProjectExists, TargetID: "granary"},
			}},
		{"Salvage", "dread", "salvage initiate town-threatened dread", []handoff.Precondition{
			{Kind: handoff.SalvageFocusSupported, Expected: "dread"},
		}},
		{"TOWNSFOLK_TALK", "morale-boost", "townsfolk talk town-threatened morale-boost",
			[]handoff.Precondition{
				{Kind: handoff.TalkTypeSupported, Expected: "morale-boost"},
			}},
	} {
		h, err := handoff.Parse([]byte(c.handoff(threatened, test.kind, test.arg)),
			schemas.Limits{})
		require.NoError(t, err, test.kind)
		assert.Equal(t, test.command, h.Command)
		assert.Equal(t, test.preconditions, h.Requirements.Preconditions)
		assert.Equal(t, test.preconditions, h.Proposal.Preconditions)
		assert.EqualValues(t, 15, h.DecisionEpoch)
		assert.Equal(t, h.Proposal.DeriveProposalID(), h.ProposalID)
	}
}
