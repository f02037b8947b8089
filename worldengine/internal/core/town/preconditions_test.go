package town_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

func TestEvaluate_Order(t *testing.T) {
	t.Parallel()
	s := town.NewState(snapshot()).Snapshot
	missing := func(id string) handoff.Precondition {
		return handoff.Precondition{Kind: handoff.ProjectExists, TargetID: id}
	}
	require.Equal(t, []handoff.Failure{
		{Kind: "project_exists", Detail: "Missing project: z"},
		{Kind: "z_unknown", Detail: "Unsupported precondition kind"},
		{Kind: "project_exists", Detail: "Missing project: a"},
		{Kind: "project_exists", Detail: "Missing project: z"},
	}, town.Evaluate([]handoff.Precondition{
		missing("z"), missing("wall"), {Kind: "z_unknown"}, {Kind: handoff.MissionAbsent},
		missing("a"), missing("z"),
	}, s))
	require.Equal(t, []handoff.Failure{}, town.Evaluate(nil, s), "a list, so that it is [] on the wire")
}

// The preconditions of the agents' own handoffs hold in their states.
func TestEvaluate_Vectors(t *testing.T) {
	t.Parallel()
	snapshots := map[string]*town.Snapshot{}
	for _, vector := range vectors[snapshotVector](t, "snapshots.json") {
		snapshots[vector.Name] = parsed(t, vector.Snapshot).Snapshot
	}
	type handoffVector struct {
		Name, SnapshotName string
		Handoff            any
	}
	for _, vector := range vectors[handoffVector](t, "handoffs.valid.json") {
		h, err := handoff.ParseTree(vector.Handoff)
		require.NoError(t, err)
		s := snapshots[vector.SnapshotName]
		require.Equal(t, s.Day, h.DecisionEpoch)
		require.Equal(t, s.TownID, h.Proposal.TownID)
		require.Empty(t, town.Evaluate(h.Requirements.Preconditions, s), vector.Name)
	}
}
