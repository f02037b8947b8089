package town

import (
	"fmt"
	"slices"

	"worldengine/handoff"
)

// Evaluate returns the failures of the preconditions on the true state of the town, in the order of
// the preconditions; none if all hold. The wire facts of the agents' library (docs/contracts.md)
// fix the details of the kinds that agents emit.
func Evaluate(preconditions []handoff.Precondition, s *Snapshot) []handoff.Failure {
	failures := []handoff.Failure{}
	for i := range preconditions {
		if detail := evaluate(&preconditions[i], s); detail != "" {
			failures = append(failures, handoff.Failure{Kind: preconditions[i].Kind,
				Detail: detail})
		}
	}
	return failures
}

// evaluate returns the reason why p fails, or "".
func evaluate(p *handoff.Precondition, s *Snapshot) string {
	switch p.Kind {
	case handoff.MissionAbsent:
		return failUnless(s.Mission == nil, "Mission is already active")
	case handoff.SideQuestExists:
		return failUnless(s.sideQuest(p.TargetID) >= 0, "Missing side quest: "+target(p))
	case handoff.ProjectExists:
		return failUnless(s.project(p.TargetID) >= 0, "Missing project: "+target(p))
	case handoff.SalvageFocusSupported:
		return failUnless(isValidArgument(handoff.PlanSalvage, p), "Unsupported salvage focus: "+expected(p))
	case handoff.TalkTypeSupported:
		return failUnless(isValidArgument(handoff.TalkToTownsfolk, p), "Unsupported talk type: "+expected(p))
	case handoff.MissionActive:
		return missionActive(p, s)
	case handoff.ProjectStatus:
		return projectStatus(p, s)
	case handoff.PressureAtLeast, handoff.PressureAtMost:
		return pressureBound(p, s)
	case handoff.TownExists:
		return failUnless(p.TargetID == "" || p.TargetID == s.TownID,
			"Not the town of this handoff: "+p.TargetID)
	}
	return "Unsupported precondition kind"
}

// isValidArgument reports whether the expected value is a valid argument of type t.
func isValidArgument(t handoff.ProposalType, p *handoff.Precondition) bool {
	value, ok := p.Expected.(string)
	return ok && slices.Contains(t.Spec().Values, value)
}

func missionActive(p *handoff.Precondition, s *Snapshot) string {
	switch {
	case s.Mission == nil:
		return "No mission is active"
	case p.TargetID != "" && p.TargetID != s.Mission.ID:
		return "Another mission is active: " + s.Mission.ID
	}
	return ""
}

func projectStatus(p *handoff.Precondition, s *Snapshot) string {
	i := s.project(p.TargetID)
	if i < 0 {
		return "Missing project: " + target(p)
	}
	want, _ := p.Expected.(string)
	return failUnless(s.Projects[i].Status == ProjectStatus(want), fmt.Sprintf(
		"Project %s is %s, expected %s", p.TargetID, s.Projects[i].Status, expected(p)))
}

func pressureBound(p *handoff.Precondition, s *Snapshot) string {
	value, ok := s.Pressure.value(p.Field)
	if !ok {
		return "Unknown pressure field: " + orNone(p.Field)
	}
	bound, ok := p.Expected.(float64)
	if !ok {
		return "Expected is not a number: " + expected(p)
	}
	holds, word := value <= bound, "most"
	if p.Kind == handoff.PressureAtLeast {
		holds, word = value >= bound, "least"
	}
	return failUnless(holds, fmt.Sprintf("Pressure %s is %s, expected at %s %s",
		p.Field, number(value), word, number(bound)))
}

// value returns the pressure with a name.
func (p *Pressure) value(name string) (float64, bool) {
	switch name {
	case "threat":
		return p.Threat, true
	case "scarcity":
		return p.Scarcity, true
	case "hope":
		return p.Hope, true
	case "dread":
		return p.Dread, true
	}
	return 0, false
}

// sideQuest and project return the index of the element with an id, or -1.
func (s *Snapshot) sideQuest(id string) int {
	return slices.IndexFunc(s.SideQuests, func(q SideQuest) bool { return q.ID == id })
}

func (s *Snapshot) project(id string) int {
	return slices.IndexFunc(s.Projects, func(p Project) bool { return p.ID == id })
}

func failUnless(holds bool, detail string) string {
	if holds {
		return ""
	}
	return detail
}

func target(p *handoff.Precondition) string { return orNone(p.TargetID) }

func orNone(s string) string {
	if s == "" {
		return "(none given)"
	}
	return s
}

// expected renders the expected value: a string as it is, any other value as JSON.
func expected(p *handoff.Precondition) string {
	switch v := p.Expected.(type) {
	case nil:
		return orNone("")
	case string:
		return v
	default:
		return string(handoff.AppendCanonical(nil, v))
	}
}

func number(f float64) string { return string(handoff.AppendNumber(nil, f)) }

// Arguments returns the arguments with which a proposal of type t can be executed now, as far as
// the town's lists show.
func (s *Snapshot) Arguments(t handoff.ProposalType) []string {
	spec := t.Spec()
	ids := append([]string{}, spec.Values...)
	switch spec.Target {
	case handoff.SideQuest:
		if s.Mission == nil {
			for _, quest := range s.SideQuests {
				ids = append(ids, quest.ID)
			}
		}
	case handoff.ActiveMission:
		if s.Mission != nil {
			ids = append(ids, s.Mission.ID)
		}
	case handoff.Project:
		for _, project := range s.Projects {
			ids = append(ids, project.ID)
		}
	}
	return ids
}
