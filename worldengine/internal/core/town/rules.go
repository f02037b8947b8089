package town

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"worldengine/handoff"
)

// The reasons why the built-in rules cannot apply a command.
const (
	MissionAlreadyActive handoff.ReasonCode = "MISSION_ALREADY_ACTIVE"
	NoActiveMission      handoff.ReasonCode = "NO_ACTIVE_MISSION"
	UnknownMission       handoff.ReasonCode = "UNKNOWN_MISSION"
	UnknownProject       handoff.ReasonCode = "UNKNOWN_PROJECT"
	ProjectBlocked       handoff.ReasonCode = "PROJECT_BLOCKED"
	ProjectComplete      handoff.ReasonCode = "PROJECT_COMPLETE"
	// EpochExhausted: the town is at MaxDay, so nothing can be executed there any more.
	EpochExhausted handoff.ReasonCode = "EPOCH_EXHAUSTED"
)

// Rules are the amounts of the built-in rules. Each is a flag of handoffd with the default below.
// With the zero Rules a command only moves the day on.
type Rules struct {
	ProjectStep     float64 `json:"projectStep" help:"The amount that PROJECT_ADVANCE adds to the progress of the project." default:"0.1"`
	SalvageFocused  float64 `json:"salvageFocused" help:"The amount that SALVAGE_PLAN takes off scarcity or dread." default:"0.1"`
	SalvageGeneral  float64 `json:"salvageGeneral" help:"The amount that SALVAGE_PLAN with the focus general takes off both." default:"0.05"`
	MoraleBoost     float64 `json:"moraleBoost" help:"The amount that the talk morale-boost adds to hope." default:"0.1"`
	CasualTalk      float64 `json:"casualTalk" help:"The amount that the talk casual adds to hope." default:"0.03"`
	MissionComplete Amount  `json:"missionComplete,omitzero" help:"The amount that MISSION_COMPLETE adds to hope." default:"0.1"`
	MissionFail     Amount  `json:"missionFail,omitzero" help:"The amount that MISSION_FAIL adds to dread." default:"0.1"`
}

// Amount is an amount that records leave out if it is 0.1, the default: records from before the rule
// lack it.
type Amount float64

// IsZero reports whether records leave the amount out.
func (a Amount) IsZero() bool { return a == 0.1 }

// UnmarshalJSON reads the amounts of a record. An absent one is the default.
func (r *Rules) UnmarshalJSON(data []byte) error {
	type members Rules
	*r = DefaultRules()
	return json.Unmarshal(data, (*members)(r))
}

var defaultRules = func() (r Rules) {
	amounts := reflect.ValueOf(&r).Elem()
	for i := range amounts.NumField() {
		text := amounts.Type().Field(i).Tag.Get("default")
		amount, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic("town: the default of a rule: " + err.Error())
		}
		amounts.Field(i).SetFloat(amount)
	}
	return r
}()

// DefaultRules are the amounts of the design, the defaults of the flags.
func DefaultRules() Rules { return defaultRules }

// Validate refuses amounts outside 0..1.
func (r Rules) Validate() error {
	for _, amount := range []float64{
		r.ProjectStep, r.SalvageFocused, r.SalvageGeneral, r.MoraleBoost, r.CasualTalk,
		float64(r.MissionComplete), float64(r.MissionFail),
	} {
		if !(amount >= 0 && amount <= 1) {
			return fmt.Errorf("town: every amount of the rules (--rules-…) must lie in 0..1, not %v",
				amount)
		}
	}
	return nil
}

// Apply returns the state after the command of p: changed by the rules, and one day later; or the
// reason why the command cannot be applied. s stays unchanged.
func (r Rules) Apply(s *Snapshot, p *handoff.Proposal) (State, handoff.ReasonCode) {
	if s.Day >= MaxDay {
		return State{}, EpochExhausted
	}
	next := *s
	next.Day++
	if reason := r.applyTo(&next, p); reason != "" {
		return State{}, reason
	}
	return hashSnapshot(&next), ""
}

// applyTo applies p to next, whose lists still belong to the old snapshot: each change copies the
// list first, and leaves the copy in canonical order.
func (r Rules) applyTo(next *Snapshot, p *handoff.Proposal) handoff.ReasonCode {
	switch p.Type {
	case handoff.AcceptMission:
		return acceptMission(next, p.Argument())
	case handoff.CompleteMission:
		return endMission(next, p.Argument(), &next.Pressure.Hope, r.MissionComplete)
	case handoff.FailMission:
		return endMission(next, p.Argument(), &next.Pressure.Dread, r.MissionFail)
	case handoff.AdvanceProject:
		return r.advanceProject(next, p.Argument())
	case handoff.PlanSalvage:
		r.salvage(&next.Pressure, p.Argument())
	case handoff.TalkToTownsfolk:
		amount := r.CasualTalk
		if p.Argument() == "morale-boost" {
			amount = r.MoraleBoost
		}
		next.Pressure.Hope = adjusted(next.Pressure.Hope, amount)
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
	next.SideQuests = slices.Delete(slices.Clone(next.SideQuests), i, i+1)
	return ""
}

func endMission(next *Snapshot, id string, pressure *float64, amount Amount) handoff.ReasonCode {
	if next.Mission == nil {
		return NoActiveMission
	}
	if next.Mission.ID != id {
		return UnknownMission
	}
	next.Mission = nil
	*pressure = adjusted(*pressure, float64(amount))
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
	project.Progress = adjusted(project.Progress, r.ProjectStep)
	if project.Progress == 1 {
		project.Status = Complete
	}
	next.Projects = slices.Clone(next.Projects)
	next.Projects[i] = project
	resortProject(next.Projects, i)
	return ""
}

func (r Rules) salvage(p *Pressure, focus string) {
	switch focus {
	case "scarcity":
		p.Scarcity = adjusted(p.Scarcity, -r.SalvageFocused)
	case "dread":
		p.Dread = adjusted(p.Dread, -r.SalvageFocused)
	case "general":
		p.Scarcity = adjusted(p.Scarcity, -r.SalvageGeneral)
		p.Dread = adjusted(p.Dread, -r.SalvageGeneral)
	}
}

// adjusted returns value + amount, kept in 0..1; a changed value is rounded to 4 decimals.
func adjusted(value, amount float64) float64 {
	if amount == 0 {
		return value
	}
	return math.Round(min(max(value+amount, 0), 1)*1e4) / 1e4
}
