package town_test

import (
	"fmt"
	"testing"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// full returns a town with as many quests and projects as a snapshot may have, in reverse order.
func full() *town.Snapshot {
	s := snapshot()
	s.SideQuests, s.Projects = nil, nil
	for i := 99; i >= 0; i-- {
		complexity := float64(i) / 10
		s.SideQuests = append(s.SideQuests, town.SideQuest{
			ID: fmt.Sprintf("quest-%02d", i), Title: "Gather Wood", Complexity: &complexity,
		})
		s.Projects = append(s.Projects, town.Project{
			ID: fmt.Sprintf("project-%02d", i), Name: "Build North Wall", Progress: 0.3,
			Status: town.Active,
		})
	}
	return s
}

func BenchmarkApply(b *testing.B) {
	for _, size := range []struct {
		name     string
		snapshot *town.Snapshot
		project  string
	}{{"few", snapshot(), "wall"}, {"full", full(), "project-50"}} {
		state := town.NewState(size.snapshot)
		for _, p := range []*handoff.Proposal{
			propose(handoff.TalkToTownsfolk, "casual"),
			propose(handoff.AdvanceProject, size.project),
		} {
			b.Run(size.name+"/"+string(p.Type), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, reason := town.DefaultRules().Apply(state.Snapshot, p); reason != "" {
						b.Fatal(reason)
					}
				}
			})
		}
	}
}
