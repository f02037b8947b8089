package town

import (
	"fmt"
	"math"

	"worldengine/handoff"
)

// Focus is what a salvage is about.
type Focus string

// The salvage foci.
const (
	FocusScarcity Focus = "scarcity"
	FocusDread    Focus = "dread"
	FocusGeneral  Focus = "general"
)

// TalkType is how townsfolk are talked to.
type TalkType string

// The talk types.
const (
	TalkMoraleBoost TalkType = "morale-boost"
	TalkCasual      TalkType = "casual"
)

// The reasons why the built-in rules cannot apply a command.
const (
	MissionAlreadyActive handoff.ReasonCode = "MISSION_ALREADY_ACTIVE"
	UnknownMission       handoff.ReasonCode = "UNKNOWN_MISSION"
	UnknownProject       handoff.ReasonCode = "UNKNOWN_PROJECT"
	ProjectBlocked       handoff.ReasonCode = "PROJECT_BLOCKED"
	ProjectComplete      handoff.ReasonCode = "PROJECT_COMPLETE"
	// EpochExhausted: the town is at MaxDay, so nothing can be executed there any more.
	EpochExhausted handoff.ReasonCode = "EPOCH_EXHAUSTED"
)

// Rules are the amounts of the built-in rules. DefaultRules gives the documented ones; the zero
// Rules moves the day on and changes no amount.
type Rules struct {
	ProjectStep    float64 `json:"projectStep"`    // added to a project's progress
	SalvageFocused float64 `json:"salvageFocused"` // taken off scarcity or dread
	SalvageGeneral float64 `json:"salvageGeneral"` // taken off both, for the focus general
	MoraleBoost    float64 `json:"moraleBoost"`    // added to hope by morale-boost
	CasualTalk     float64 `json:"casualTalk"`     // added to hope by casual
}

// DefaultRules are the amounts of the design.
func DefaultRules() Rules {
	return Rules{
		ProjectStep: 0.1, SalvageFocused: 0.1, SalvageGeneral: 0.05, MoraleBoost: 0.1,
		CasualTalk: 0.03,
	}
}

// Validate refuses amounts outside 0..1.
func (r Rules) Validate() error {
	for _, amount := range []float64{
		r.ProjectStep, r.SalvageFocused, r.SalvageGeneral, r.MoraleBoost, r.CasualTalk,
	} {
		if !(amount >= 0 && amount <= 1) {
			return fmt.Errorf("town: every amount of the rules must lie in 0..1, not %v", amount)
		}
	}
	return nil
}

// Apply returns the state after the command of p: the day moved on by one, and what the rules
// say. A reason other than "" means that the command cannot be applied and nothing changes. s is
// left as it is.
func (r Rules) Apply(s *Snapshot, p *handoff.Proposal) (State, handoff.ReasonCode) {
	if s.Day >= MaxDay {
		return State{}, EpochExhausted
	}
	next := *s
	next.Day++
	if reason := r.change(&next, p); reason != "" {
		return State{}, reason
	}
	return stateOf(&next), ""
}

// change applies p to next, whose lists still belong to the old snapshot: what changes a list
// copies it first and leaves it in canonical order.
func (r Rules) change(next *Snapshot, p *handoff.Proposal) handoff.ReasonCode {
	switch p.Type {
	case handoff.AcceptMission:
		return acceptMission(next, p.Argument())
	case handoff.AdvanceProject:
		return r.advanceProject(next, p.Argument())
	case handoff.PlanSalvage:
		r.salvage(&next.Pressure, Focus(p.Argument()))
	case handoff.TalkToTownsfolk:
		amount := r.CasualTalk
		if TalkType(p.Argument()) == TalkMoraleBoost {
			amount = r.MoraleBoost
		}
		next.Pressure.Hope = moved(next.Pressure.Hope, amount)
	}
	return ""
}

func acceptMission(next *Snapshot, id string) handoff.ReasonCode {
	if next.Mission != nil {
		return MissionAlreadyActive
	}
	i := next.sideQuest(id)
	if i < 0 {
		return UnknownMission
	}
	quest := next.SideQuests[i]
	next.Mission = &Mission{ID: quest.ID, Title: quest.Title}
	rest := make([]SideQuest, 0, len(next.SideQuests)-1)
	next.SideQuests = append(append(rest, next.SideQuests[:i]...), next.SideQuests[i+1:]...)
	return ""
}

func (r Rules) advanceProject(next *Snapshot, id string) handoff.ReasonCode {
	i := next.project(id)
	if i < 0 {
		return UnknownProject
	}
	project := next.Projects[i]
	switch project.Status {
	case Blocked:
		return ProjectBlocked
	case Complete:
		return ProjectComplete
	case Planning:
		project.Status = Active
	}
	project.Progress = moved(project.Progress, r.ProjectStep)
	if project.Progress == 1 {
		project.Status = Complete
	}
	next.Projects = append([]Project{}, next.Projects...)
	next.Projects[i] = project
	resortProject(next.Projects, i)
	return ""
}

func (r Rules) salvage(p *Pressure, focus Focus) {
	switch focus {
	case FocusScarcity:
		p.Scarcity = moved(p.Scarcity, -r.SalvageFocused)
	case FocusDread:
		p.Dread = moved(p.Dread, -r.SalvageFocused)
	case FocusGeneral:
		p.Scarcity = moved(p.Scarcity, -r.SalvageGeneral)
		p.Dread = moved(p.Dread, -r.SalvageGeneral)
	}
}

// moved returns value + amount, kept in 0..1 and rounded to 4 decimals where it changed.
func moved(value, amount float64) float64 {
	if amount == 0 {
		return value
	}
	return math.Round(min(max(value+amount, 0), 1)*1e4) / 1e4
}
