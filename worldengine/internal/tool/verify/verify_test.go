package verify_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/tool/verify"
)

func TestFile_Vectors(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][]string{
		"handoffs.valid.json": {"handoffId", "proposalId", "townId"}, "handoffs.invalid.json": nil,
		"results.json":            {"resultId", "handoffId", "status"},
		"results.revision-1.json": {"executionId", "handoffId", "status"},
		"snapshots.json":          {"townId", "snapshotHash"},
	} {
		data, err := os.ReadFile("../../../../testdata/vectors/" + name)
		require.NoError(t, err)
		found := verify.File(data)
		require.NotEmpty(t, found)
		for _, d := range found {
			require.Equal(t, ids != nil, d.Valid, "%s: %s %s: %v", name, d.Path, d.Name, d.Violations)
			require.Equal(t, d.Valid, len(d.Violations) == 0, d.Path)
		}
		for _, id := range ids {
			require.NotEmpty(t, found[len(found)-1].IDs[id], "%s: %s", name, id)
		}
	}
}

func TestFile_Members(t *testing.T) {
	t.Parallel()
	found := verify.File([]byte(`[{"name": "a", "handoff": {}, "snapshot": {}}, {"schemaVersion": "x"}]`))
	var places []string
	for _, d := range found {
		require.False(t, d.Valid)
		places = append(places, d.Path+" "+d.Name)
	}
	require.Equal(t, []string{"/0/handoff a", "/0/snapshot a", "/1 "}, places)
	require.Contains(t, verify.File([]byte("\xef\xbb\xbf{}"))[0].Violations[0].Message, "byte order mark")
	require.False(t, verify.File([]byte(`{`))[0].Valid)
}
