package schemas_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// oracle compiles the documents with the library alone, whose validator Validate must agree with.
var oracle = sync.OnceValue(func() map[schemas.Name]*jsonschema.Schema {
	c := jsonschema.NewCompiler()
	url := func(n schemas.Name) string {
		return "https://worldengine.example/schemas/" + string(n) + ".schema.json"
	}
	for _, n := range schemas.Names() {
		src, err := schemas.Source(n)
		if err != nil {
			panic(err)
		}
		if err := c.AddResource(url(n), strings.NewReader(string(src))); err != nil {
			panic(err)
		}
	}
	out := map[schemas.Name]*jsonschema.Schema{}
	for _, n := range schemas.Names() {
		out[n] = c.MustCompile(url(n))
	}
	return out
})

// agree asserts that Validate and the library accept or refuse tree alike.
func agree(t testing.TB, n schemas.Name, tree any) (valid bool) {
	t.Helper()
	want, got := oracle()[n].Validate(tree), schemas.Validate(n, tree)
	require.Equal(t, want == nil, got == nil, "%s: %v\nlibrary: %#v\nours: %v", n, tree, want, got)
	return got == nil
}

// value returns a new value for mutate: every type, and the borders of every keyword.
func value(r *rand.Rand) any {
	type object = map[string]any
	values := []any{
		nil, true, false, "", "x", "a|b", "|", 0.0, 1.0, -1.0, 0.5, 1.5, 10.0, 10.5, 1e300, 5e-324,
		9007199254740991.0, 9007199254740992.0, []any{}, []any{nil}, []any{"x"}, object{},
		object{"x": 1.0}, object{"kind": "k"}, object{"id": "i", "title": "t"},
		strings.Repeat("a", 64), strings.Repeat("A", 64), "proposal_" + strings.Repeat("0", 64),
		"proposal.v2", "snapshot.v1", "executed", "failed", "stale", "duplicate", "StepStarted",
		"RunPaused", "SALVAGE_PLAN", "TOWNSFOLK_TALK", "general", "casual", "2026-02-16T10:00:00Z",
	}
	return values[r.IntN(len(values))]
}

// mutate changes one random place of tree: a value is replaced, removed, doubled or given a new
// name.
func mutate(r *rand.Rand, tree any) any {
	if r.IntN(8) == 0 {
		return value(r)
	}
	switch at := tree.(type) {
	case map[string]any:
		return mutateObject(r, at)
	case []any:
		if len(at) == 0 || r.IntN(4) == 0 {
			return append(at, value(r))
		}
		i := r.IntN(len(at))
		at[i] = mutate(r, at[i])
		return at
	}
	return value(r)
}

func mutateObject(r *rand.Rand, at map[string]any) any {
	names := slices.Sorted(maps.Keys(at))
	if len(names) == 0 || r.IntN(8) == 0 {
		extra := []string{"extra", "", "stepId", "preconditions", "worldState"}
		at[extra[r.IntN(len(extra))]] = value(r)
		return at
	}
	name := names[r.IntN(len(names))]
	if r.IntN(5) == 0 {
		delete(at, name)
		return at
	}
	at[name] = mutate(r, at[name])
	return at
}

// copied returns a tree of its own with the same values.
func copied(tree any) any {
	switch tree := tree.(type) {
	case map[string]any:
		members := make(map[string]any, len(tree))
		for name, value := range tree {
			members[name] = copied(value)
		}
		return members
	case []any:
		values := make([]any, len(tree))
		for i, value := range tree {
			values[i] = copied(value)
		}
		return values
	}
	return tree
}

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried if that takes long")

func TestValidate_Library(t *testing.T) {
	t.Parallel()
	for _, n := range schemas.Names() {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, uint64(len(n))))
			verdicts, first := map[bool]int{}, example(t, n)
			enough := func() bool { return verdicts[true] > 10 && verdicts[false] > 10 }
			for i := 0; i < 300**drawnTimes || !enough(); i++ {
				require.Less(t, i, 5_000**drawnTimes,
					"hardly any payload is valid, or invalid: %v", verdicts)
				tree := copied(first)
				for range 1 + r.IntN(3) {
					tree = mutate(r, tree)
				}
				verdicts[agree(t, n, tree)]++
			}
		})
	}
}

func FuzzValidate(f *testing.F) {
	for i, n := range schemas.Names() {
		b, err := json.Marshal(example(f, n))
		require.NoError(f, err)
		f.Add(i, b)
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		names := schemas.Names()
		tree, err := schemas.Decode(data, schemas.Limits{})
		if err != nil {
			return
		}
		n := names[uint(which)%uint(len(names))]
		if agree(t, n, tree) {
			return
		}
		for _, v := range refusal(t, schemas.Validate(n, tree)).Violations {
			require.NotEmpty(t, v.Message)
			require.True(t, v.Path == "" || strings.HasPrefix(v.Path, "/"), fmt.Sprint(v))
		}
	})
}
