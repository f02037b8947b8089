package town_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/town"
)

// generator draws random snapshots and proposals, the same ones for the same seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 53))} }

var (
	ids = []string{
		"a", "A", "b", "a-b", "a_b", "ab", "a b", "a.b", composed, decomposed, "wall", "Wall", "02",
		"10", "2", "#1", "~", "ß", "ss", "и", "ё", "東京", "😀", "o'brien", `q"uote`,
		"tab\there", "\x01",
	}
	texts = []string{"Gather Wood", "Back\\slash", "<b>&amp;</b>", "\u2028", "Ünïcödé", "😀"}
	// fractions are values at which amounts clamp, round, or land exactly.
	fractions = []float64{
		0, 1e-7, 0.00004, 0.03, 0.05, 0.0999, 0.1, 0.3333333333333333, 0.5, 0.55, 0.7, 0.8999, 0.9,
		0.90004, 0.95, 0.97, 0.9999, 0.999999999999999, 1,
	}
	days = []float64{0, 1, 15, 2147483648, town.MaxDay - 1, town.MaxDay}
)

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

func (g generator) fraction() float64 {
	switch g.IntN(3) {
	case 0:
		return pick(g, fractions)
	case 1:
		return float64(g.IntN(10_001)) / 1e4
	}
	return g.Float64()
}

// some returns up to n different ids.
func (g generator) some(n int) []string {
	chosen := []string{}
	for _, i := range g.Perm(len(ids))[:g.IntN(n+1)] {
		chosen = append(chosen, ids[i])
	}
	return chosen
}

// snapshot draws the tree of a valid snapshot.
func (g generator) snapshot() map[string]any {
	quests, projects := []any{}, []any{}
	for _, id := range g.some(6) {
		quest := map[string]any{"id": id, "title": pick(g, texts)}
		if g.IntN(2) == 0 {
			quest["complexity"] = 10 * g.fraction()
		}
		quests = append(quests, quest)
	}
	for _, id := range g.some(6) {
		projects = append(projects, map[string]any{
			"id": id, "name": pick(g, texts), "progress": g.fraction(),
			"status": pick(g, []string{"planning", "active", "blocked", "complete"}),
		})
	}
	tree := map[string]any{
		"schemaVersion": "snapshot.v1", "day": pick(g, days), "townId": pick(g, ids),
		"mission": nil, "sideQuests": quests, "projects": projects, "latestNetherEvent": nil,
		"pressure": map[string]any{
			"threat": g.fraction(), "scarcity": g.fraction(), "hope": g.fraction(),
			"dread": g.fraction(),
		},
	}
	if g.IntN(3) == 0 {
		mission := map[string]any{"id": pick(g, ids), "title": "Active"}
		if g.IntN(2) == 0 {
			mission["description"], mission["reward"] = pick(g, texts), 100*g.fraction()
		}
		tree["mission"] = mission
	}
	if g.IntN(2) == 0 {
		tree["latestNetherEvent"] = pick(g, texts)
	}
	return tree
}

// proposal draws a proposal, often about something that the town has.
func (g generator) proposal(tree map[string]any) *handoff.Proposal {
	known := func(list string) string {
		if elements := tree[list].([]any); len(elements) > 0 && g.IntN(4) > 0 {
			return pick(g, elements).(map[string]any)["id"].(string)
		}
		return pick(g, ids)
	}
	switch g.IntN(6) {
	case 0:
		return propose(handoff.AcceptMission, known("sideQuests"))
	case 5:
		id := pick(g, ids)
		if mission, ok := tree["mission"].(map[string]any); ok && g.IntN(4) > 0 {
			id = mission["id"].(string)
		}
		return propose(pick(g, []handoff.ProposalType{handoff.CompleteMission,
			handoff.FailMission}), id)
	case 1, 2:
		return propose(handoff.AdvanceProject, known("projects"))
	case 3:
		return propose(handoff.PlanSalvage, pick(g, []string{"scarcity", "dread", "general"}))
	}
	return propose(handoff.TalkToTownsfolk, pick(g, []string{"morale-boost", "casual"}))
}

// oracle applies the design's sentence about the built-in rules to a plain tree. It returns the
// reason why the command cannot be applied, or "".
func oracle(tree map[string]any, kind, argument string) string {
	if tree["day"].(float64) >= 9007199254740991 {
		return "EPOCH_EXHAUSTED"
	}
	pressure := tree["pressure"].(map[string]any)
	add := func(to map[string]any, name string, amount float64) {
		value := math.Max(0, math.Min(1, to[name].(float64)+amount))
		to[name], _ = strconv.ParseFloat(strconv.FormatFloat(value, 'f', 4, 64), 64)
	}
	switch kind + " " + argument {
	case "SALVAGE_PLAN scarcity":
		add(pressure, "scarcity", -0.1)
	case "SALVAGE_PLAN dread":
		add(pressure, "dread", -0.1)
	case "SALVAGE_PLAN general":
		add(pressure, "scarcity", -0.05)
		add(pressure, "dread", -0.05)
	case "TOWNSFOLK_TALK morale-boost":
		add(pressure, "hope", 0.1)
	case "TOWNSFOLK_TALK casual":
		add(pressure, "hope", 0.03)
	}
	if kind == "MAYOR_ACCEPT_MISSION" {
		if reason := acceptOracle(tree, argument); reason != "" {
			return reason
		}
	}
	if end, ok := map[string]string{"MISSION_COMPLETE": "hope", "MISSION_FAIL": "dread"}[kind]; ok {
		mission, active := tree["mission"].(map[string]any)
		switch {
		case !active:
			return "NO_ACTIVE_MISSION"
		case mission["id"] != argument:
			return "UNKNOWN_MISSION"
		}
		tree["mission"] = nil
		add(pressure, end, 0.1)
	}
	if kind == "PROJECT_ADVANCE" {
		reason := "UNKNOWN_PROJECT"
		for _, element := range tree["projects"].([]any) {
			project := element.(map[string]any)
			if project["id"] != argument {
				continue
			}
			switch project["status"] {
			case "blocked":
				return "PROJECT_BLOCKED"
			case "complete":
				return "PROJECT_COMPLETE"
			}
			add(project, "progress", 0.1)
			project["status"] = "active"
			if project["progress"] == 1.0 {
				project["status"] = "complete"
			}
			reason = ""
		}
		if reason != "" {
			return reason
		}
	}
	tree["day"] = tree["day"].(float64) + 1
	return ""
}

// acceptOracle applies the sentence about accepting a mission.
func acceptOracle(tree map[string]any, argument string) string {
	if tree["mission"] != nil {
		return "MISSION_ALREADY_ACTIVE"
	}
	left := []any{}
	for _, element := range tree["sideQuests"].([]any) {
		quest := element.(map[string]any)
		if quest["id"] != argument {
			left = append(left, quest)
			continue
		}
		tree["mission"] = map[string]any{"id": argument, "title": quest["title"]}
	}
	if tree["mission"] == nil {
		return "UNKNOWN_MISSION"
	}
	tree["sideQuests"] = left
	return ""
}

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried if that takes long")

func TestRules_Oracle(t *testing.T) {
	t.Parallel()
	rules := town.DefaultRules()
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			g := newGenerator(100 + seed)
			reasons := map[string]int{}
			for range 300 * *drawnTimes {
				before := stateOf(t, g.snapshot())
				same := parsed(t, before.Canonical)
				tree := decoded(t, before.Canonical).(map[string]any)
				p := g.proposal(tree)

				after, reason := rules.Apply(before.Snapshot, p)
				require.Equal(t, same, before, "the input is left as it is")
				want := oracle(tree, string(p.Type), p.Argument())
				require.Equal(t, want, string(reason))
				reasons[want]++
				if want != "" {
					require.False(t, after.Exists())
					continue
				}
				require.Equal(t, before.Epoch()+1, after.Epoch())
				requireSound(t, after)
				require.Equal(t, string(stateOf(t, tree).Canonical), string(after.Canonical))
			}
			for _, reason := range []string{
				"", "MISSION_ALREADY_ACTIVE", "UNKNOWN_MISSION", "UNKNOWN_PROJECT",
				"NO_ACTIVE_MISSION", "PROJECT_BLOCKED", "PROJECT_COMPLETE", "EPOCH_EXHAUSTED",
			} {
				require.NotZero(t, reasons[reason], "%q was never met", reason)
			}
		})
	}
}

// requireSound asserts that a state is valid, in canonical order, and the state of its own bytes.
func requireSound(t *testing.T, state town.State) {
	t.Helper()
	tree := decoded(t, state.Canonical)
	requireOrdered(t, tree.(map[string]any))
	require.Equal(t, state, parsed(t, state.Canonical))
	require.Equal(t, state.Hash, handoff.Hash(state.Canonical))
}
