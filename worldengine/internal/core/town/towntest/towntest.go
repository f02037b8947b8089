// Package towntest has the states of towns that tests begin with.
package towntest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

// Threatened returns the state of a town on day 15, after change.
func Threatened(change ...func(*town.Snapshot)) town.State {
	s := &town.Snapshot{
		SchemaVersion: town.SchemaVersion,
		Day:           15,
		TownID:        "town-threatened",
		SideQuests:    []town.SideQuest{{ID: "sq-1", Title: "Gather Wood"}},
		Pressure:      town.Pressure{Threat: 0.7, Scarcity: 0.3, Hope: 0.55, Dread: 0.25},
		Projects: []town.Project{
			{ID: "gate", Name: "Gate", Progress: 0.2, Status: town.Blocked},
			{ID: "wall", Name: "Wall", Progress: 0.4, Status: town.Active},
		},
	}
	for _, c := range change {
		c(s)
	}
	return town.NewState(s)
}

func Calmer(s *town.Snapshot) { s.Pressure.Threat = 0.1 }

// Proposal returns a proposal of mayor-1 for a town, with the argument of its type.
func Proposal(
	at town.State, kind handoff.ProposalType, argument string, pre ...handoff.Precondition,
) handoff.Proposal {
	return handoff.Proposal{
		Type: kind, ActorID: "mayor-1", TownID: at.Snapshot.TownID, Priority: 0.5,
		Reason: "Because.", Args: map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.Hash, DecisionEpoch: at.Epoch(), Preconditions: pre,
	}
}

// Propose returns the handoff of a proposal.
func Propose(
	t testing.TB, at town.State, kind handoff.ProposalType, argument string,
) *handoff.Handoff {
	t.Helper()
	h, err := handoff.New(Proposal(at, kind, argument))
	require.NoError(t, err)
	return h
}
