package town_test

import (
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// active makes a mission active.
func active(s *town.Snapshot) { s.Mission = &town.Mission{ID: "m", Title: "M"} }

// TestRules_Apply is the design's paragraph about them, row by row: change makes the town
// before, want the town after; the day moves on in every one.
func TestRules_Apply(t *testing.T) {
	t.Parallel()
	progress := func(id string, value float64, status town.ProjectStatus) func(*town.Snapshot) {
		return func(s *town.Snapshot) {
			for i := range s.Projects {
				if s.Projects[i].ID == id {
					s.Projects[i].Progress, s.Projects[i].Status = value, status
				}
			}
		}
	}
	pressure := func(scarcity, hope, dread float64) func(*town.Snapshot) {
		return func(s *town.Snapshot) {
			s.Pressure.Scarcity, s.Pressure.Hope, s.Pressure.Dread = scarcity, hope, dread
		}
	}
	for _, row := range []struct {
		name         string
		proposal     *handoff.Proposal
		change, want func(*town.Snapshot)
	}{
		{
			"mission accept turns the side quest into the mission and takes it off the list",
			propose(handoff.AcceptMission, "sq-1"), nil,
			func(s *town.Snapshot) {
				s.Mission = &town.Mission{ID: "sq-1", Title: "Gather Wood"}
				s.SideQuests = s.SideQuests[1:]
			},
		},
		{"project advance adds 0.1",
			propose(handoff.AdvanceProject, "wall"), nil, progress("wall", 0.5, town.Active)},
		{"planning becomes active",
			propose(handoff.AdvanceProject, "mill"), nil, progress("mill", 0.1, town.Active)},
		{"at 1 it is complete", propose(handoff.AdvanceProject, "wall"),
			progress("wall", 0.9, town.Active), progress("wall", 1, town.Complete)},
		{"progress never exceeds 1", propose(handoff.AdvanceProject, "wall"),
			progress("wall", 0.95, town.Active), progress("wall", 1, town.Complete)},
		{"what rounds to 1 is complete", propose(handoff.AdvanceProject, "wall"),
			progress("wall", 0.89996, town.Active), progress("wall", 1, town.Complete)},
		{"progress is rounded to 4 decimals", propose(handoff.AdvanceProject, "wall"),
			progress("wall", 0.3333333333333333, town.Active),
			progress("wall", 0.4333, town.Active)},
		{"salvage takes 0.1 off scarcity", propose(handoff.PlanSalvage, "scarcity"),
			pressure(0.3, 0.5, 0.6), pressure(0.2, 0.5, 0.6)},
		{"salvage takes 0.1 off dread", propose(handoff.PlanSalvage, "dread"),
			pressure(0.3, 0.5, 0.6), pressure(0.3, 0.5, 0.5)},
		{"salvage takes 0.05 off both", propose(handoff.PlanSalvage, "general"),
			pressure(0.3, 0.5, 0.6), pressure(0.25, 0.5, 0.55)},
		{"one of both stops at 0", propose(handoff.PlanSalvage, "general"),
			pressure(0.04, 0.5, 0.6), pressure(0, 0.5, 0.55)},
		{"morale-boost adds 0.1 to hope", propose(handoff.TalkToTownsfolk, "morale-boost"),
			pressure(0.3, 0.5, 0.6), pressure(0.3, 0.6, 0.6)},
		{"casual adds 0.03 to hope", propose(handoff.TalkToTownsfolk, "casual"),
			pressure(0.3, 0.5, 0.6), pressure(0.3, 0.53, 0.6)},
		{"hope stops at 1", propose(handoff.TalkToTownsfolk, "casual"),
			pressure(0.3, 0.98, 0.6), pressure(0.3, 1, 0.6)},
		{"what is not changed is not rounded", propose(handoff.TalkToTownsfolk, "casual"),
			pressure(0.123456, 0.123456, 0.654321), pressure(0.123456, 0.1535, 0.654321)},
		{"mission complete takes the mission off and adds 0.1 to hope",
			propose(handoff.CompleteMission, "m"), active,
			func(s *town.Snapshot) { s.Mission, s.Pressure.Hope = nil, 0.65 }},
		{"mission fail takes the mission off and adds 0.1 to dread",
			propose(handoff.FailMission, "m"), active,
			func(s *town.Snapshot) { s.Mission, s.Pressure.Dread = nil, 0.35 }},
		{"the last day can be reached", propose(handoff.AdvanceProject, "wall"),
			func(s *town.Snapshot) { s.Day = town.MaxDay - 1 }, progress("wall", 0.5, town.Active)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			before, want := snapshot(), snapshot()
			if row.change != nil {
				row.change(before)
				row.change(want)
			}
			row.want(want)
			want.Day++
			after, reason := town.DefaultRules().Apply(town.NewState(before).Snapshot, row.proposal)
			require.Empty(t, reason)
			require.Equal(t, town.NewState(want), after)
			requireSound(t, after)
		})
	}
}

func TestRules_Refused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		proposal *handoff.Proposal
		change   func(*town.Snapshot)
		want     handoff.ReasonCode
	}{
		{"a mission is active", propose(handoff.AcceptMission, "sq-1"), active, "MISSION_ALREADY_ACTIVE"},
		{"no mission to complete", propose(handoff.CompleteMission, "sq-1"), nil, "NO_ACTIVE_MISSION"},
		{"no mission to fail", propose(handoff.FailMission, "sq-1"), nil, "NO_ACTIVE_MISSION"},
		{"another mission to complete", propose(handoff.CompleteMission, "sq-1"), active,
			"UNKNOWN_MISSION"},
		{"another mission to fail", propose(handoff.FailMission, "M"), active, "UNKNOWN_MISSION"},
		{"no such side quest", propose(handoff.AcceptMission, "sq-3"), nil, "UNKNOWN_MISSION"},
		{"no such project", propose(handoff.AdvanceProject, "moat"), nil, "UNKNOWN_PROJECT"},
		{"a blocked project", propose(handoff.AdvanceProject, "gate"), nil, "PROJECT_BLOCKED"},
		{"a complete project", propose(handoff.AdvanceProject, "hall"), nil, "PROJECT_COMPLETE"},
		{"the last day comes before anything else", propose(handoff.AdvanceProject, "gate"),
			func(s *town.Snapshot) {
				s.Day = 9007199254740991
			}, "EPOCH_EXHAUSTED"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := snapshot()
			if row.change != nil {
				row.change(s)
			}
			before := town.NewState(s)
			same := parsed(t, before.Canonical)
			after, reason := town.DefaultRules().Apply(before.Snapshot, row.proposal)
			require.Equal(t, row.want, reason)
			require.Equal(t, town.State{}, after)
			require.Equal(t, same, before)
		})
	}
}

// TestRules_ReorderProjects: two ids that differ in their bytes only are
// ordered by their progress, which the command changes.
func TestRules_ReorderProjects(t *testing.T) {
	t.Parallel()
	s := snapshot()
	s.Projects = []town.Project{
		{ID: composed, Name: "same", Progress: 0.45, Status: town.Active},
		{ID: decomposed, Name: "same", Progress: 0.5, Status: town.Active},
	}
	before := town.NewState(s)
	require.Equal(t, composed, before.Snapshot.Projects[0].ID)
	after, reason := town.DefaultRules().Apply(before.Snapshot,
		propose(handoff.AdvanceProject, composed))
	require.Empty(t, reason)
	require.Equal(t, decomposed, after.Snapshot.Projects[0].ID)
	require.Equal(t, 0.55, after.Snapshot.Projects[1].Progress)
	require.Equal(t, composed, before.Snapshot.Projects[0].ID, "the input keeps its order")
	requireSound(t, after)

	s.Projects = []town.Project{ // and by their status, where a step is nothing
		{ID: composed, Name: "same", Progress: 0.5, Status: town.Blocked},
		{ID: decomposed, Name: "same", Progress: 0.5, Status: town.Planning},
	}
	after, reason = town.Rules{}.Apply(town.NewState(s).Snapshot,
		propose(handoff.AdvanceProject, decomposed))
	require.Empty(t, reason)
	require.Equal(t, decomposed, after.Snapshot.Projects[0].ID)
	requireSound(t, after)
}

func TestRules_Amounts(t *testing.T) {
	t.Parallel()
	rules := town.Rules{
		ProjectStep: 0.25, SalvageFocused: 0.2, SalvageGeneral: 0.125, MoraleBoost: 0.3,
		CasualTalk: 0.01, MissionComplete: 0.15, MissionFail: 0.05,
	}
	require.NoError(t, rules.Validate())
	s := snapshot()
	active(s)
	state := town.NewState(s)
	apply := func(kind handoff.ProposalType, argument string) *town.Snapshot {
		after, reason := rules.Apply(state.Snapshot, propose(kind, argument))
		require.Empty(t, reason)
		return after.Snapshot
	}
	require.Equal(t, 0.65, apply(handoff.AdvanceProject, "wall").Projects[3].Progress)
	require.Equal(t, 0.1, apply(handoff.PlanSalvage, "scarcity").Pressure.Scarcity)
	require.Equal(t, 0.05, apply(handoff.PlanSalvage, "dread").Pressure.Dread)
	require.Equal(t, 0.175, apply(handoff.PlanSalvage, "general").Pressure.Scarcity)
	require.Equal(t, 0.125, apply(handoff.PlanSalvage, "general").Pressure.Dread)
	require.Equal(t, 0.85, apply(handoff.TalkToTownsfolk, "morale-boost").Pressure.Hope)
	require.Equal(t, 0.7, apply(handoff.CompleteMission, "m").Pressure.Hope)
	require.Equal(t, 0.3, apply(handoff.FailMission, "m").Pressure.Dread)
	require.Equal(t, 0.56, apply(handoff.TalkToTownsfolk, "casual").Pressure.Hope)
}

func TestRules_Zero(t *testing.T) {
	t.Parallel()
	s := snapshot()
	s.Pressure = town.Pressure{Scarcity: 0.123456, Hope: 0.123456, Dread: 0.123456}
	s.Projects[3].Progress = 0.123456
	before := town.NewState(s)
	for _, p := range []*handoff.Proposal{
		propose(handoff.AdvanceProject, "wall"), propose(handoff.PlanSalvage, "general"),
		propose(handoff.PlanSalvage, "dread"), propose(handoff.TalkToTownsfolk, "casual"),
	} {
		want := parsed(t, before.Canonical).Snapshot
		want.Day++
		after, reason := town.Rules{}.Apply(before.Snapshot, p)
		require.Empty(t, reason)
		require.Equal(t, town.NewState(want), after)
	}
}

func TestRules_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, town.DefaultRules().Validate())
	require.NoError(t, town.Rules{}.Validate())
	require.NoError(t, town.Rules{ProjectStep: 1, CasualTalk: 1}.Validate())
	for _, bad := range []float64{-0.1, 1.0001, math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, rules := range []town.Rules{
			{ProjectStep: bad}, {SalvageFocused: bad}, {SalvageGeneral: bad},
			{MoraleBoost: bad}, {CasualTalk: bad}, {MissionComplete: town.Amount(bad)},
			{MissionFail: town.Amount(bad)},
		} {
			require.ErrorContains(t, rules.Validate(), "0..1", "%v", rules)
		}
	}
}

// Records from before missions could end hold five amounts. They are read and written as they are.
func TestRules_RecordsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	for _, record := range []string{
		`{"projectStep":0.2,"salvageFocused":0.1,"salvageGeneral":0.05,"moraleBoost":0.1,"casualTalk":0}`,
		`{"projectStep":0.1,"salvageFocused":0.1,"salvageGeneral":0.05,"moraleBoost":0.1,"casualTalk":0.03,"missionComplete":0}`,
		`{"projectStep":0,"salvageFocused":0,"salvageGeneral":0,"moraleBoost":0,"casualTalk":0,"missionComplete":1,"missionFail":0.2}`,
	} {
		var rules town.Rules
		require.NoError(t, json.Unmarshal([]byte(record), &rules))
		if !strings.Contains(record, "missionFail") {
			require.Equal(t, town.DefaultRules().MissionFail, rules.MissionFail)
		}
		written, err := json.Marshal(&rules)
		require.NoError(t, err)
		require.Equal(t, record, string(written))
	}
}
