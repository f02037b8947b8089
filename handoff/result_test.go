package handoff_test

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// hashed are the members of a result that resultId covers.
var hashed = []string{
	"accepted", "evaluation", "executed", "handoffId", "reasonCode", "status", "worldState",
}

// mutants returns every value that differs from v in a single place with plausible JSON types:
// flipped, counted up, retyped to null and back, with a failure or a member more or fewer.
func mutants(v any) []any {
	switch v := v.(type) {
	case bool:
		return []any{!v}
	case float64:
		return []any{v + max(1, math.Trunc(v/1024)), nil} // another one beyond 2^53, too
	case string:
		out := []any{v[:len(v)-1] + flipped(v[len(v)-1]), v + "0", nil}
		if upper := strings.ToUpper(v); upper != v {
			out = append(out, upper)
		}
		return out
	case nil:
		return []any{1.0, "x", strings.Repeat("0", 64)}
	case []any:
		out := []any{append(slices.Clone(v), map[string]any{"kind": "k", "detail": "d"})}
		for i, element := range v {
			for _, mutant := range mutants(element) {
				changed := slices.Clone(v)
				changed[i] = mutant
				out = append(out, changed)
			}
			out = append(out, slices.Delete(slices.Clone(v), i, i+1))
		}
		return out
	case map[string]any:
		var out []any
		for _, name := range slices.Sorted(maps.Keys(v)) {
			for _, mutant := range mutants(v[name]) {
				changed := maps.Clone(v)
				changed[name] = mutant
				out = append(out, changed)
			}
			fewer := maps.Clone(v)
			delete(fewer, name)
			out = append(out, fewer)
		}
		return out
	}
	panic("not JSON")
}

// flipped returns another lower-case hex digit.
func flipped(c byte) string {
	if c == '0' {
		return "1"
	}
	return "0"
}

// A change of a single member that the id covers is refused.
func TestParseResult_Mutants(t *testing.T) {
	t.Parallel()
	for _, vector := range vectors[resultVector](t, "results.json") {
		t.Run(vector.Name, func(t *testing.T) {
			t.Parallel()
			whole := decoded(t, vector.Result).(map[string]any)
			tried := 0
			for _, name := range hashed {
				value, ok := whole[name]
				if !ok { // worldState: adding one is a mutation
					value = map[string]any{}
					mutant := maps.Clone(whole)
					mutant[name] = map[string]any{
						"postExecutionSnapshotHash": nil, "postExecutionDecisionEpoch": nil,
					}
					requireRefused(t, mutant, name)
				}
				for _, changed := range mutants(value) {
					mutant := maps.Clone(whole)
					mutant[name] = changed
					requireRefused(t, mutant, name)
					tried++
				}
			}
			require.Greater(t, tried, 30)
		})
	}
}

func requireRefused(t *testing.T, tree map[string]any, name string) {
	t.Helper()
	data, err := json.Marshal(tree)
	require.NoError(t, err)
	r, err := handoff.ParseResult(data, schemas.Limits{})
	require.Nil(t, r)
	paths := refusal(t, err)
	require.True(t, slices.ContainsFunc(paths, func(path string) bool {
		return path == "/resultId" || strings.HasPrefix(path, "/"+name) ||
			name == "status" && (path == "/accepted" || path == "/executed")
	}), "%v for a mutation of %s: %s", paths, name, data)
}

// TestParseResult_Refused has the refusals that are no mutants of a vector.
func TestParseResult_Refused(t *testing.T) {
	t.Parallel()
	r := someResult(t)
	wire, err := r.MarshalWire()
	require.NoError(t, err)
	good := string(wire)
	for _, epoch := range []string{"15", "15.0", "1.5e1", "150E-1"} { // one number
		again, err := handoff.ParseResult([]byte(strings.ReplaceAll(good,
			`ecisionEpoch":15`, `ecisionEpoch":`+epoch)), schemas.Limits{})
		require.NoError(t, err, epoch)
		require.Equal(t, r, again, epoch)
	}

	for _, row := range []struct {
		name, wire string
		paths      []string
	}{
		{"no reason", strings.Replace(good, "EXECUTED", "", 1), []string{"/reasonCode"}},
		{"a member too many", strings.Replace(good, `"accepted"`, `"at":1,"accepted"`, 1),
			[]string{"/at"}},
		{"a member twice", strings.Replace(good, `"accepted"`, `"accepted":true,"accepted"`, 1),
			[]string{"/accepted"}},
		{"an epoch beyond an int64",
			strings.Replace(good, `"actualDecisionEpoch":15`, `"actualDecisionEpoch":1e30`, 1),
			[]string{"/evaluation/staleCheck/actualDecisionEpoch"}},
		{"not JSON", good[1:], []string{""}},
	} {
		require.NotEqual(t, good, row.wire, row.name)
		_, err := handoff.ParseResult([]byte(row.wire), schemas.Limits{})
		require.Equal(t, row.paths, refusal(t, err), row.name)
	}
}

// The id is the hash of the canonical form of seven members, whatever they are.
func TestResult_DeriveID(t *testing.T) {
	t.Parallel()
	require.NoError(t, quick.Check(func(r handoff.Result) bool {
		epochs := []*int64{r.Evaluation.StaleCheck.ActualDecisionEpoch}
		if r.WorldState != nil {
			epochs = append(epochs, r.WorldState.DecisionEpoch)
		}
		for _, epoch := range epochs {
			if epoch != nil {
				*epoch %= 1 << 53
			}
		}
		wire, err := r.MarshalWire()
		require.NoError(t, err)
		tree := decoded(t, wire).(map[string]any)
		maps.DeleteFunc(tree, func(name string, _ any) bool { return !slices.Contains(hashed, name) })
		return r.DeriveID() == "result_"+handoff.Hash(handoff.AppendCanonical(nil, tree))
	}, nil))
}

// someResult returns the result of an executed handoff that went from epoch 15 to 16.
func someResult(t testing.TB) *handoff.Result {
	t.Helper()
	h, err := handoff.New(proposal())
	require.NoError(t, err)
	before, after := int64(15), int64(16)
	return handoff.NewResult(h, handoff.Outcome{
		Status: handoff.Executed, ReasonCode: handoff.ReasonExecuted,
		Evaluation: handoff.Evaluation{
			Preconditions: handoff.PreconditionReport{
				Evaluated: true, Passed: true, Failures: []handoff.Failure{},
			},
			DuplicateCheck: handoff.DuplicateReport{Evaluated: true},
			StaleCheck: handoff.StaleReport{
				Evaluated: true, Passed: true,
				ActualSnapshotHash: &h.SnapshotHash, ActualDecisionEpoch: &before,
			},
		},
		WorldState: &handoff.WorldState{SnapshotHash: &h.SnapshotHash, DecisionEpoch: &after},
	})
}
