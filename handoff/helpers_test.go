package handoff_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

// handoffVector is an entry of handoffs.valid.json and of handoffs.invalid.json.
type handoffVector struct {
	Name    string
	Handoff json.RawMessage
}

// vectors reads one of the files that the agents' own library printed.
func vectors[T any](t testing.TB, file string) []T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", file))
	require.NoError(t, err)
	var out []T
	require.NoError(t, json.Unmarshal(raw, &out))
	require.NotEmpty(t, out)
	return out
}

// validHandoff returns the first valid handoff, as an agent sends it.
func validHandoff(t testing.TB) []byte {
	t.Helper()
	return vectors[handoffVector](t, "handoffs.valid.json")[0].Handoff
}

// compacted returns data without white space and otherwise byte for byte.
func compacted(t testing.TB, data []byte) string {
	t.Helper()
	v := jsontext.Value(slices.Clone(data)) // Compact works in place
	require.NoError(t, v.Compact())
	return string(v)
}

// decoded returns the tree of data, which must be JSON.
func decoded(t testing.TB, data []byte) any {
	t.Helper()
	tree, err := schemas.Decode(data, schemas.Limits{})
	require.NoError(t, err)
	return tree
}

// parsed returns the handoff in data, which must be valid.
func parsed(t testing.TB, data []byte) *handoff.Handoff {
	t.Helper()
	h, err := handoff.Parse(data, schemas.Limits{})
	require.NoError(t, err)
	return h
}

// refusal asserts that err is a *schemas.ValidationError with violations and returns their paths.
func refusal(t testing.TB, err error) (paths []string) {
	t.Helper()
	require.Error(t, err)
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.NotEmpty(t, invalid.Violations)
	for _, v := range invalid.Violations {
		require.NotEmpty(t, v.Message)
		paths = append(paths, v.Path)
	}
	slices.Sort(paths)
	return paths
}

// proposal returns a valid proposal that is not named yet; the caller may change it.
func proposal() handoff.Proposal {
	return handoff.Proposal{
		SnapshotHash:  "6ef815c5516680841110389a91528f14cc18be404db6a779ca54fd022fa26146",
		DecisionEpoch: 15,
		Type:          handoff.AdvanceProject,
		ActorID:       "mayor-1",
		TownID:        "town-threatened",
		Priority:      0.8,
		Reason:        "Threat level 70% demands project advancement for defense.",
		ReasonTags:    []string{"high_threat"},
		Args:          map[string]string{"projectId": "wall-perimeter"},
		Preconditions: []handoff.Precondition{
			{Kind: handoff.ProjectExists, TargetID: "wall-perimeter"},
		},
	}
}
