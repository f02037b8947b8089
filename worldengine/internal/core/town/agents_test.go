package town_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/town"
)

// agentTakes restates the validator of the agents' library, member by member. It is compared with
// the schema, and shares nothing with it.
func agentTakes(tree map[string]any) bool {
	text := func(v any) bool { s, ok := v.(string); return ok && s != "" }
	number := func(v any, low, high float64) bool {
		f, ok := v.(float64)
		return ok && !math.IsInf(f, 0) && low <= f && f <= high
	}
	only := func(o map[string]any, members ...string) bool {
		known := 0
		for _, m := range members {
			if _, ok := o[m]; ok {
				known++
			}
		}
		return known == len(o)
	}
	absentOr := func(o map[string]any, member string, ok func(any) bool) bool {
		v, there := o[member]
		return !there || ok(v)
	}
	list := func(v any, each func(map[string]any) bool) bool {
		elements, ok := v.([]any)
		ids := map[any]bool{}
		for _, e := range elements {
			o, isObject := e.(map[string]any)
			if !isObject || !text(o["id"]) || ids[o["id"]] || !each(o) {
				return false
			}
			ids[o["id"]] = true
		}
		return ok && len(elements) <= 100
	}
	mission, isMission := tree["mission"].(map[string]any)
	_, hasMission := tree["mission"]
	pressure, _ := tree["pressure"].(map[string]any)
	event, hasEvent := tree["latestNetherEvent"]
	_, eventIsText := event.(string)
	day, isNumber := tree["day"].(float64)
	statuses := map[string]bool{"planning": true, "active": true, "blocked": true, "complete": true}
	isStatus := func(v any) bool { s, ok := v.(string); return ok && statuses[s] }
	return only(tree, "schemaVersion", "day", "townId", "mission", "sideQuests", "pressure",
		"projects", "latestNetherEvent") &&
		tree["schemaVersion"] == "snapshot.v1" && isNumber && day >= 0 && day == math.Trunc(day) &&
		day <= town.MaxDay &&
		text(tree["townId"]) && hasMission && (tree["mission"] == nil || isMission &&
		only(mission, "id", "title", "description", "reward") && text(mission["id"]) &&
		text(mission["title"]) &&
		absentOr(mission, "description", func(v any) bool { _, ok := v.(string); return ok }) &&
		absentOr(mission, "reward", func(v any) bool { return number(v, 0, math.MaxFloat64) })) &&
		list(tree["sideQuests"], func(o map[string]any) bool {
			return only(o, "id", "title", "complexity") && text(o["title"]) &&
				absentOr(o, "complexity", func(v any) bool { return number(v, 0, 10) })
		}) &&
		list(tree["projects"], func(o map[string]any) bool {
			return only(o, "id", "name", "progress", "status") && text(o["name"]) &&
				number(o["progress"], 0, 1) &&
				isStatus(o["status"])
		}) &&
		only(pressure, "threat", "scarcity", "hope", "dread") && number(pressure["threat"], 0, 1) &&
		number(pressure["scarcity"], 0, 1) && number(pressure["hope"], 0, 1) &&
		number(pressure["dread"], 0, 1) &&
		hasEvent && (event == nil || eventIsText)
}

// The engine accepts a snapshot if and only if agents do.
func TestParseTree_Agents(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(12, 15))
	fresh := func() map[string]any {
		return map[string]any{
			"schemaVersion": "snapshot.v1", "day": 15.0, "townId": "t",
			"mission": map[string]any{"id": "m", "title": "M", "description": "", "reward": 1.5},
			"sideQuests": []any{
				map[string]any{"id": "a", "title": "A", "complexity": 2.5},
				map[string]any{"id": "b", "title": "B"},
			},
			"pressure": map[string]any{"threat": 0.5, "scarcity": 0.0, "hope": 1.0, "dread": 0.25},
			"projects": []any{
				map[string]any{"id": "a", "name": "A", "progress": 0.5, "status": "active"},
			},
			"latestNetherEvent": nil,
		}
	}
	values := []any{
		"", " ", "a", "b", "active", "done", "snapshot.v1", nil, true, 0.0, -0.5, 0.5, 1.0,
		1.5, 10.0, 10.5, 1e300,
		float64(town.MaxDay), float64(town.MaxDay + 1), []any{}, map[string]any{},
	}
	members := []string{
		"id", "title", "name", "complexity", "progress", "status", "reward", "description",
		"threat", "hope", "day",
		"townId", "mission", "sideQuests", "projects", "pressure", "latestNetherEvent",
		"schemaVersion", "other",
	}
	taken := 0
	for range 6_000 * *drawnTimes {
		tree := fresh()
		objects := []map[string]any{
			tree, tree["mission"].(map[string]any), tree["pressure"].(map[string]any),
		}
		for _, l := range []string{"sideQuests", "projects"} {
			for _, e := range tree[l].([]any) {
				objects = append(objects, e.(map[string]any))
			}
		}
		for range 1 + random.IntN(2) {
			of, member := objects[random.IntN(len(objects))], members[random.IntN(len(members))]
			if random.IntN(6) == 0 {
				delete(of, member)
			} else {
				of[member] = values[random.IntN(len(values))]
			}
		}
		want := agentTakes(tree)
		_, err := town.ParseTree(tree)
		require.Equal(t, want, err == nil, "%v: %v", tree, err)
		if want {
			taken++
		}
	}
	require.Greater(t, taken, 300)
}
