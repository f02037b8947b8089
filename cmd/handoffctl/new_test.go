package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

func TestNewMakesWhatTheReferenceAgentMakes(t *testing.T) {
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

func TestNewTakesFlags(t *testing.T) {
	c := online(t)
	h := decode[handoff.Handoff](t, c.handoff(threatened, "talk", "casual",
		"--actor", "warden-3", "--priority", "0.25", "--reason", "quiet evening",
		"--no-preconditions"))
	assert.Equal(t, "warden-3", h.Proposal.ActorID)
	assert.Equal(t, 0.25, h.Proposal.Priority)
	assert.Equal(t, "quiet evening", h.Proposal.Reason)
	assert.Empty(t, h.Requirements.Preconditions)
}

func TestNewWorksOfflineFromAFile(t *testing.T) {
	c := offline(t)
	file := c.file(string(newTown(t, "north", 7)))
	assert.EqualValues(t, 7, decode[handoff.Handoff](t,
		c.handoff("north", "talk", "casual", "--snapshot", file)).DecisionEpoch)
	reply := c.file(`{"townId": "north", "snapshot": ` + string(newTown(t, "north", 7)) + `}`)
	assert.Equal(t, c.handoff("north", "talk", "casual", "--snapshot", file),
		c.handoff("north", "talk", "casual", "--snapshot", reply), "a reply of town get will do")

	got := c.run("new", "south", "talk", "casual", "--snapshot", file)
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, `is the town "north", not "south"`)
	got = c.run("new", "north", "talk", "casual", "--snapshot",
		c.file(`{"schemaVersion": "snapshot.v1"}`))
	assert.Equal(t, exitUsage, got.status)
	assert.Contains(t, got.err, "file.json is not valid\n  ")
}

func TestNewRefusesABadProposal(t *testing.T) {
	c := offline(t)
	file := c.file(string(newTown(t, "north", 7)))
	got := c.run("new", "north", "talk", "shouting", "--snapshot", file)
	assert.Equal(t, exitUsage, got.status)
	assert.Regexp(t, `(?m)^  /proposal/args/talkType: .+`, got.err)
	got = c.run("new", "north", "talk", "casual", "--snapshot", file, "--priority",
		"2", "-o", "json")
	assert.Equal(t, exitUsage, got.status)
	assert.Equal(t, "USAGE", errorCode(t, got.out))
	got = c.run("new", "nowhere", "talk", "casual")
	assert.Equal(t, exitUnavailable, got.status, "without a file the server is asked")
}

func TestNewFailsForAnUnknownTown(t *testing.T) {
	c := online(t)
	got := c.run("new", "nowhere", "talk", "casual")
	assert.Equal(t, exitRefused, got.status)
	assert.Contains(t, got.err, "UNKNOWN_TOWN (404)")
}
