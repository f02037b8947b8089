package town_test

import (
	stdjson "encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/internal/collation"
)

func TestParse_Vectors(t *testing.T) {
	t.Parallel()
	all := vectors[snapshotVector](t, "snapshots.json")
	require.Len(t, all, 60)
	for _, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			state := parsed(t, vector.Snapshot)
			require.Equal(t, vector.CanonicalJSON, string(state.Canonical))
			require.Equal(t, vector.SnapshotHash, state.Hash)
			require.Equal(t, vector.SnapshotHash, handoff.Hash(state.Canonical))
			require.True(t, state.Exists())
			require.Equal(t, state.Snapshot.Day, state.Epoch())

			general := handoff.AppendCanonical(nil, decoded(t, []byte(vector.CanonicalJSON)))
			require.Equal(t, string(general), string(state.Canonical))

			again := parsed(t, state.Canonical)
			require.Equal(t, state, again, "the canonical form is a fixed point")
		})
	}
}

// Each encoder writes all of a Snapshot, also an empty description.
func TestParse_AnyEncoder(t *testing.T) {
	t.Parallel()
	encoders := map[string]func(any) ([]byte, error){
		"v1": stdjson.Marshal,
		"v2": func(v any) ([]byte, error) { return json.Marshal(v) },
	}
	empty, none := "", 0.0
	special := snapshot()
	special.Mission = &town.Mission{ID: "m", Title: "M", Description: &empty, Reward: &none}
	special.SideQuests[1].Complexity = &none
	special.LatestNetherEvent = &empty
	states := []town.State{town.NewState(special)}
	for _, vector := range vectors[snapshotVector](t, "snapshots.json") {
		states = append(states, parsed(t, vector.Snapshot))
	}
	for name, encode := range encoders {
		for _, state := range states {
			data, err := encode(state.Snapshot)
			require.NoError(t, err)
			require.Equal(t, string(state.Canonical), string(parsed(t, data).Canonical), name)
		}
	}
}

// A state is canonical and in order, in whatever order its lists are given.
func TestState_Canonical(t *testing.T) {
	t.Parallel()
	g := newGenerator(11)
	for range 400 * *drawnTimes {
		given := g.snapshot()
		state := stateOf(t, given)
		tree := decoded(t, state.Canonical)
		require.Equal(t, string(handoff.AppendCanonical(nil, tree)), string(state.Canonical))
		requireOrdered(t, tree.(map[string]any))

		for _, list := range []string{"sideQuests", "projects"} {
			given[list] = distinct(given[list].([]any))
		}
		want := stateOf(t, given)
		for _, list := range []string{"sideQuests", "projects"} {
			elements := given[list].([]any)
			g.Shuffle(len(elements), func(i, j int) {
				elements[i], elements[j] = elements[j], elements[i]
			})
		}
		require.Equal(t, want, stateOf(t, given))
	}
}

// requireOrdered asserts that the lists of a snapshot's tree are in canonical order, pair by pair.
func requireOrdered(t *testing.T, tree map[string]any) {
	t.Helper()
	for list, keys := range map[string][]string{
		"sideQuests": {"id", "title", "complexity"},
		"projects":   {"id", "name", "progress", "status"},
	} {
		elements := tree[list].([]any)
		for i := 1; i < len(elements); i++ {
			before, after := elements[i-1].(map[string]any), elements[i].(map[string]any)
			require.LessOrEqual(t, compareBy(keys, before, after), 0, "%v, then %v", before, after)
		}
	}
}

func compareBy(keys []string, a, b map[string]any) int {
	for _, key := range keys {
		order := 0
		switch x := a[key].(type) {
		case string:
			order = collation.Compare(x, b[key].(string))
		case float64:
			switch y, ok := b[key].(float64); {
			case !ok || x < y:
				order = -1
			case x > y:
				order = 1
			}
		case nil: // absent: last
			if _, ok := b[key]; ok {
				order = 1
			}
		}
		if order != 0 {
			return order
		}
	}
	return 0
}

// distinct drops the elements whose id compares as equal to an earlier one.
func distinct(elements []any) []any {
	kept := []any{}
	for _, element := range elements {
		id := element.(map[string]any)["id"].(string)
		if !slices.ContainsFunc(kept, func(other any) bool {
			return collation.Compare(id, other.(map[string]any)["id"].(string)) == 0
		}) {
			kept = append(kept, element)
		}
	}
	return kept
}

// Two ids that differ in their bytes but collate as equal: é in one code point and in two.
const composed, decomposed = "\u00e9", "e\u0301"

func quest(id, title string, complexity ...float64) town.SideQuest {
	q := town.SideQuest{ID: id, Title: title}
	for _, c := range complexity {
		q.Complexity = &c
	}
	return q
}

func TestNewState_EqualIDs(t *testing.T) {
	t.Parallel()
	require.Zero(t, town.Compare(composed, decomposed))
	for _, row := range []struct {
		name   string
		quests []town.SideQuest // in canonical order
	}{
		{"by title", []town.SideQuest{quest(decomposed, "a"), quest(composed, "B"),
			quest("f", "a")}},
		{"by complexity", []town.SideQuest{quest(decomposed, "a", 0), quest(composed, "a", 0.5)}},
		{"an absent complexity last", []town.SideQuest{quest(decomposed, "a", 10),
			quest(composed, "a")}},
		{"by letters before case", []town.SideQuest{
			quest("a", ""), quest("B", ""), quest("b-a", ""), quest("ba", ""),
		}},
		{"by newer characters, as Node.js has them", []town.SideQuest{
			quest("-", ""), quest("\U0001f5fc", ""), quest("\U0001f9f1", ""),
			quest("\u20bf", ""), quest("1", ""),
			quest("wall \U0001f9f1", ""), quest("wall \U0001f6e1\ufe0f", ""), quest("wall a", ""),
			quest("\u0500", ""), quest("\U0001e900", ""), quest("\U000323af", ""),
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, reverse := range []bool{false, true} {
				s := snapshot()
				s.SideQuests = slices.Clone(row.quests)
				if reverse {
					slices.Reverse(s.SideQuests)
				}
				require.Equal(t, row.quests, town.NewState(s).Snapshot.SideQuests)
			}
		})
	}
	t.Run("projects by name, progress and status", func(t *testing.T) {
		t.Parallel()
		want := []town.Project{
			{ID: composed, Name: "a", Progress: 0.5, Status: town.Planning},
			{ID: decomposed, Name: "b", Progress: 0.25, Status: town.Planning},
			{ID: composed, Name: "b", Progress: 0.5, Status: town.Active},
			{ID: decomposed, Name: "b", Progress: 0.5, Status: town.Blocked},
		}
		s := snapshot()
		s.Projects = slices.Clone(want)
		slices.Reverse(s.Projects)
		require.Equal(t, want, town.NewState(s).Snapshot.Projects)
	})
}

// The sort is stable. Only long lists with other members show that: these have four titles for ids
// that all collate as equal.
func TestNewState_Stable(t *testing.T) {
	t.Parallel()
	s, titles := snapshot(), []string{"a", "b", "c", "d"}
	s.SideQuests, s.Projects = nil, nil
	for _, i := range newGenerator(13).Perm(64) { // every way to write six é
		id := ""
		for bit := range 6 {
			id += []string{composed, decomposed}[i>>bit&1]
		}
		s.SideQuests = append(s.SideQuests, quest(id, titles[i%4]))
		s.Projects = append(s.Projects, town.Project{ID: id, Name: titles[i%4],
			Status: town.Active})
	}
	var quests []town.SideQuest
	var projects []town.Project
	for _, title := range titles {
		for i := range 64 {
			if s.SideQuests[i].Title == title {
				quests, projects = append(quests, s.SideQuests[i]), append(projects, s.Projects[i])
			}
		}
	}
	state := town.NewState(s)
	require.Equal(t, quests, state.Snapshot.SideQuests)
	require.Equal(t, projects, state.Snapshot.Projects)
}

func TestParse_Refused(t *testing.T) {
	t.Parallel()
	canonical := string(town.NewState(snapshot()).Canonical)
	for text, path := range map[string]string{
		`{`: "", canonical + canonical: "",
		strings.Replace(canonical, `"latestNetherEvent":null,`, "", 1): "/latestNetherEvent",
		strings.Replace(canonical, `"day":15`, `"day":15.5`, 1):        "/day",
	} {
		state, err := town.Parse([]byte(text), schemas.Limits{})
		invalid, ok := errors.AsType[*schemas.ValidationError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, path, invalid.Violations[0].Path)
		require.False(t, state.Exists())
	}
	_, err := town.Parse([]byte(canonical), schemas.Limits{Bytes: 10})
	require.Error(t, err)
	_, err = town.ParseStored([]byte(`{`))
	require.Error(t, err)
}

// Nothing makes Parse panic, and a snapshot that it accepts has one canonical form.
func FuzzParse(f *testing.F) {
	for _, vector := range vectors[snapshotVector](f, "snapshots.json") {
		f.Add([]byte(vector.Snapshot), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		state, err := town.Parse(data, schemas.Limits{})
		if err != nil {
			return
		}
		tree := decoded(t, data).(map[string]any)
		require.Equal(t, state, parsed(t, state.Canonical))
		require.NoError(t, schemas.Validate(schemas.Snapshot, decoded(t, state.Canonical)))
		requireOrdered(t, decoded(t, state.Canonical).(map[string]any))

		g := rand.New(rand.NewPCG(seed, 0))
		for _, list := range []string{"sideQuests", "projects"} {
			elements := tree[list].([]any)
			if len(distinct(elements)) < len(elements) {
				return // the order of equal elements counts
			}
			g.Shuffle(len(elements), func(i, j int) {
				elements[i], elements[j] = elements[j],
					elements[i]
			})
		}
		require.Equal(t, state.Hash, stateOf(t, tree).Hash)
	})
}
