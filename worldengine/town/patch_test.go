package town_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/town"
)

const patched = `{"schemaVersion":"snapshot.v1","day":3,"townId":"t","mission":{"id":"m","title":"M","reward":5},
	"sideQuests":[{"id":"b","title":"B"},{"id":"a","title":"A"}],
	"pressure":{"threat":0.1,"scarcity":0.2,"hope":0.3,"dread":0.4},"projects":[],"latestNetherEvent":"gate"}`

func patchOf(t *testing.T, patch string) (town.State, error) {
	t.Helper()
	before, err := town.Parse([]byte(patched), schemas.Limits{})
	require.NoError(t, err)
	canonical := string(before.Canonical)
	tree, err := schemas.Decode([]byte(patch), schemas.Limits{})
	require.NoError(t, err)
	after, err := before.Patch(tree)
	require.Equal(t, canonical, string(before.Canonical), "what was there stays as it is")
	again, parseErr := town.Parse([]byte(patched), schemas.Limits{})
	require.NoError(t, parseErr)
	require.Equal(t, again, before)
	return after, err
}

func TestState_Patch(t *testing.T) {
	t.Parallel()
	after, err := patchOf(t, `{"day":4,"pressure":{"hope":1},"mission":{"reward":null,"title":"N"},
		"sideQuests":[{"id":"c","title":"C"},{"id":"b","title":"B"}]}`)
	require.NoError(t, err)
	want, err := town.Parse([]byte(
		`{"schemaVersion":"snapshot.v1","day":4,"townId":"t","mission":{"id":"m","title":"N"},
		"sideQuests":[{"id":"b","title":"B"},{"id":"c","title":"C"}],
		"pressure":{"threat":0.1,"scarcity":0.2,"hope":1,"dread":0.4},"projects":[],"latestNetherEvent":"gate"}`),
		schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, want, after)
	same, err := patchOf(t, `{}`)
	require.NoError(t, err)
	require.Equal(t, int64(3), same.Epoch())

	ended, err := patchOf(t, `{"mission":null,"latestNetherEvent":null}`)
	require.NoError(t, err)
	require.Nil(t, ended.Snapshot.Mission)
	require.Nil(t, ended.Snapshot.LatestNetherEvent)
	begun, err := ended.Patch(decoded(t, []byte(`{"mission":{"id":"n","title":"N"}}`)))
	require.NoError(t, err)
	require.Equal(t, &town.Mission{ID: "n", Title: "N"}, begun.Snapshot.Mission)
}

// A state that is larger than a request, because a number takes more room in canonical form, can be
// read and patched.
func TestState_PatchOfALargeState(t *testing.T) {
	t.Parallel()
	large := snapshot()
	text := strings.Repeat("x", schemas.DefaultBytes)
	large.Mission = &town.Mission{ID: "m", Title: "M", Description: &text}
	state := town.NewState(large)
	require.Equal(t, state.Hash, parsed(t, state.Canonical).Hash)
	after, err := state.Patch(decoded(t, []byte(`{"mission":null}`)))
	require.NoError(t, err)
	require.Nil(t, after.Snapshot.Mission)
	_, err = state.Patch(decoded(t, []byte(`{"day":16}`)))
	require.Equal(t, []string{""}, refusal(t, err), "too large for a state that is given")
}

// TestState_PatchRefused patches the town of snapshot into one that is no snapshot.v1, or is another
// town.
func TestState_PatchRefused(t *testing.T) {
	t.Parallel()
	before := town.NewState(snapshot())
	for patch, paths := range map[string][]string{
		`{"townId":"other"}`:      {"/townId"},
		`{"townId":""}`:           {"/townId"},
		`{"pressure":{"hope":2}}`: {"/pressure/hope"},
		`{"pressure":7}`:          {"/pressure"},
		`{"weather":"rain"}`:      {"/weather"},
		`[]`:                      {""},
		`{"mission":{"description":{"no":null}}}`: {"/mission/description", "/mission/id",
			"/mission/title"},
		`{"day":null}`:             {"/day"},
		`{"day":9007199254740992}`: {"/day"},
		`{"sideQuests":[{"id":"a","title":"1"},{"id":"a","title":"2"},{"id":"a","title":"3"}],
			"projects":[{"id":"a","name":"A","progress":0,"status":"active"},
			{"id":"b","name":"B","progress":0,"status":"active"},
			{"id":"b","name":"B","progress":0,"status":"active"}]}`: {"/projects/2/id",
			"/sideQuests/1/id", "/sideQuests/2/id"},
	} {
		_, err := before.Patch(decoded(t, []byte(patch)))
		require.Equal(t, paths, refusal(t, err), patch)
		if len(paths) == 3 && paths[0] == "/projects/2/id" {
			require.ErrorContains(t, err, "must be unique, but /projects/1 has the same id")
		}
	}
	// Within one list ids are unique.
	_, err := before.Patch(decoded(t, []byte(`{"sideQuests":[{"id":"wall","title":"Wall"}]}`)))
	require.NoError(t, err)
}
