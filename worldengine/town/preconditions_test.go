package town_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// Every kind is evaluated on a town in which it holds (detail ""), one in which it fails, and without
// its target. The details of the first five kinds are the contract's, byte for byte.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	withMission := func(s *town.Snapshot) { s.Mission = &town.Mission{ID: "sq-9", Title: "Nine"} }
	type P = handoff.Precondition
	for _, row := range []struct {
		name   string
		change func(*town.Snapshot)
		p      P
		detail string
	}{
		{"no mission", nil, P{Kind: "mission_absent"}, ""},
		{"a mission", withMission, P{Kind: "mission_absent"}, "Mission is already active"},

		{"a side quest", nil, P{Kind: "side_quest_exists", TargetID: "sq-2"}, ""},
		{"no such side quest", nil, P{Kind: "side_quest_exists", TargetID: "wall"},
			"Missing side quest: wall"},
		{"a side quest that became the mission", withMission, P{Kind: "side_quest_exists", TargetID: "sq-9"},
			"Missing side quest: sq-9"},
		{"which side quest?", nil, P{Kind: "side_quest_exists"},
			"Missing side quest: (none given)"},

		{"a project", nil, P{Kind: "project_exists", TargetID: "gate"}, ""},
		{"no such project", nil, P{Kind: "project_exists", TargetID: "sq-1"},
			"Missing project: sq-1"},
		{"which project?", nil, P{Kind: "project_exists"}, "Missing project: (none given)"},

		{"salvage for scarcity", nil, P{Kind: "salvage_focus_supported", Expected: "scarcity"}, ""},
		{"salvage for gold", nil, P{Kind: "salvage_focus_supported", Expected: "gold"},
			"Unsupported salvage focus: gold"},
		{"salvage for a number", nil, P{Kind: "salvage_focus_supported", Expected: 1e21},
			"Unsupported salvage focus: 1e+21"},
		{"salvage for what?", nil, P{Kind: "salvage_focus_supported"},
			"Unsupported salvage focus: (none given)"},
		{"a salvage focus is no target", nil, P{Kind: "salvage_focus_supported", TargetID: "dread"},
			"Unsupported salvage focus: (none given)"},

		{"a boost of morale", nil, P{Kind: "talk_type_supported", Expected: "morale-boost"}, ""},
		{"a rant", nil, P{Kind: "talk_type_supported", Expected: "rant"},
			"Unsupported talk type: rant"},
		{"true talk", nil, P{Kind: "talk_type_supported", Expected: true},
			"Unsupported talk type: true"},
		{"what talk?", nil, P{Kind: "talk_type_supported"}, "Unsupported talk type: (none given)"},

		{"any mission", withMission, P{Kind: "mission_active"}, ""},
		{"that mission", withMission, P{Kind: "mission_active", TargetID: "sq-9"}, ""},
		{"another mission", withMission, P{Kind: "mission_active", TargetID: "sq-1"},
			"Another mission is active: sq-9"},
		{"no mission at all", nil, P{Kind: "mission_active"}, "No mission is active"},

		{"a status", nil, P{Kind: "project_status", TargetID: "gate", Expected: "blocked"}, ""},
		{"another status", nil, P{Kind: "project_status", TargetID: "gate", Expected: "active"},
			"Project gate is blocked, expected active"},
		{"which status?", nil, P{Kind: "project_status", TargetID: "gate"},
			"Project gate is blocked, expected (none given)"},
		{"the status of no project", nil, P{Kind: "project_status", TargetID: "moat", Expected: "active"},
			"Missing project: moat"},

		{"threat high enough", nil, P{Kind: "pressure_at_least", Field: "threat", Expected: 0.7},
			""},
		{"threat too low", nil, P{Kind: "pressure_at_least", Field: "threat", Expected: 0.71},
			"Pressure threat is 0.7, expected at least 0.71"},
		{"scarcity low enough", nil, P{Kind: "pressure_at_most", Field: "scarcity", Expected: 0.3},
			""},
		{"scarcity too low", nil, P{Kind: "pressure_at_least", Field: "scarcity", Expected: 0.5},
			"Pressure scarcity is 0.3, expected at least 0.5"},
		{"dread high enough", nil, P{Kind: "pressure_at_least", Field: "dread", Expected: 0.25},
			""},
		{"hope too high", nil, P{Kind: "pressure_at_most", Field: "hope", Expected: 1e-7},
			"Pressure hope is 0.55, expected at most 1e-7"},
		{"a field that does not exist", nil, P{Kind: "pressure_at_most", Field: "joy", Expected: 1.0},
			"Unknown pressure field: joy"},
		{"which field?", nil, P{Kind: "pressure_at_least", Expected: 0.0},
			"Unknown pressure field: (none given)"},
		{"a bound in words", nil, P{Kind: "pressure_at_least", Field: "hope", Expected: "much"},
			"Expected is not a number: much"},
		{"which bound?", nil, P{Kind: "pressure_at_most", Field: "hope"},
			"Expected is not a number: (none given)"},

		{"a town that exists", nil, P{Kind: "town_exists"}, ""},
		{"this town", nil, P{Kind: "town_exists", TargetID: "town-threatened"}, ""},
		{"another town", nil, P{Kind: "town_exists", TargetID: "alpha"},
			"Not the town of this handoff: alpha"},

		{"a kind of another engine", nil, P{Kind: "moon_is_full"}, "Unsupported precondition kind"},
		{"kinds are exact", nil, P{Kind: "Mission_Absent"}, "Unsupported precondition kind"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := snapshot()
			if row.change != nil {
				row.change(s)
			}
			state := town.NewState(s)
			same := parsed(t, state.Canonical)
			want := []handoff.Failure{}
			if row.detail != "" {
				want = append(want, handoff.Failure{Kind: row.p.Kind, Detail: row.detail})
			}
			require.Equal(t, want, town.Evaluate([]handoff.Precondition{row.p}, state.Snapshot))
			require.Equal(t, same, state)
		})
	}
}

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

// The preconditions of agents hold in the state that they saw.
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
		h, err := handoff.FromTree(vector.Handoff)
		require.NoError(t, err)
		s := snapshots[vector.SnapshotName]
		require.Equal(t, s.Day, h.DecisionEpoch)
		require.Equal(t, s.TownID, h.Proposal.TownID)
		require.Empty(t, town.Evaluate(h.Requirements.Preconditions, s), vector.Name)
	}
}

// A command can be about a target that the town has now.
func TestSnapshot_Arguments(t *testing.T) {
	t.Parallel()
	s := snapshot()
	for kind, want := range map[handoff.ProposalType][]string{
		handoff.AcceptMission:  {"sq-1", "sq-2"},
		handoff.FailMission:    {},
		handoff.AdvanceProject: {"gate", "hall", "mill", "wall"},
		handoff.PlanSalvage:    {"scarcity", "dread", "general"},
	} {
		require.Equal(t, want, s.Arguments(kind), kind)
	}
	active(s)
	require.Empty(t, s.Arguments(handoff.AcceptMission))
	require.Equal(t, []string{"m"}, s.Arguments(handoff.CompleteMission))
}
