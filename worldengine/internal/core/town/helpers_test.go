package town_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
)

// snapshotVector is an entry of snapshots.json.
type snapshotVector struct {
	Name          string
	Snapshot      json.RawMessage
	CanonicalJSON string
	SnapshotHash  string
}

// vectors reads one of the files that the agents' own library printed.
func vectors[T any](t testing.TB, file string) []T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "testdata", "vectors", file))
	require.NoError(t, err)
	var out []T
	require.NoError(t, json.Unmarshal(raw, &out))
	require.NotEmpty(t, out)
	return out
}

// decoded returns the tree of data, which must be JSON.
func decoded(t testing.TB, data []byte) any {
	t.Helper()
	tree, err := schemas.Decode(data, schemas.Limits{})
	require.NoError(t, err)
	return tree
}

// parsed returns the state in data, which must be one that may be stored.
func parsed(t testing.TB, data []byte) town.State {
	t.Helper()
	state, err := town.ParseStored(data)
	require.NoError(t, err)
	return state
}

// stateOf returns the state of a snapshot's tree, which must be valid.
func stateOf(t testing.TB, tree map[string]any) town.State {
	t.Helper()
	return parsed(t, handoff.AppendCanonical(nil, tree))
}

// refusal asserts that err is a *schemas.ValidationError and returns the paths of its violations.
func refusal(t testing.TB, err error) (paths []string) {
	t.Helper()
	require.Error(t, err)
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%T: %v", err, err)
	require.Equal(t, schemas.Snapshot, invalid.Schema)
	for _, v := range invalid.Violations {
		paths = append(paths, v.Path)
	}
	slices.Sort(paths)
	return paths
}

// snapshot returns a town with something of everything; the caller may change it.
func snapshot() *town.Snapshot {
	complexity := 2.5
	return &town.Snapshot{
		SchemaVersion: town.SchemaVersion,
		Day:           15,
		TownID:        "town-threatened",
		SideQuests: []town.SideQuest{
			{ID: "sq-1", Title: "Gather Wood", Complexity: &complexity},
			{ID: "sq-2", Title: "Scout"},
		},
		Pressure: town.Pressure{Threat: 0.7, Scarcity: 0.3, Hope: 0.55, Dread: 0.25},
		Projects: []town.Project{
			{ID: "gate", Name: "Gate", Progress: 0.2, Status: town.Blocked},
			{ID: "hall", Name: "Hall", Progress: 1, Status: town.Complete},
			{ID: "mill", Name: "Mill", Progress: 0, Status: town.Planning},
			{ID: "wall", Name: "Wall", Progress: 0.4, Status: town.Active},
		},
	}
}

// propose returns a proposal about the one argument of its type.
func propose(kind handoff.ProposalType, argument string) *handoff.Proposal {
	return &handoff.Proposal{
		Type: kind, TownID: "town-threatened",
		Args: map[string]string{kind.ArgumentName(): argument},
	}
}
