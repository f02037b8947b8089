package machine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
)

// An embodiment is kept as canonical JSON with the contract's members; an invalid or large one is
// dropped, and the result stands without it.
func TestEmbodiments(t *testing.T) {
	t.Parallel()
	fits := `{"backendHint":"` + strings.Repeat("a", maxEmbodiment-len(`{"backendHint":""}`)) + `"}`
	for reported, want := range map[string]string{
		`{"actions":[{"b":1,"a":[]}],"backendHint":"x","more":1}`: `{"actions":[{"a":[],"b":1}],` +
			`"backendHint":"x"}`,
		`{}`:                                `{}`,
		`{"backendHint":null,"actions":[]}`: `{"actions":[],"backendHint":null}`,
		fits:                                fits,
		fits + " ":                          "",
		`{"backendHint":7}`:                 "",
		`{"backendHint":{}}`:                "",
		`{"actions":{}}`:                    "",
		`{"actions":["a"]}`:                 "",
		`{"actions":[null]}`:                "",
		`{"actions":null}`:                  "",
		`[]`:                                "",
		`{"actions":[{"a":1,"a":2}]}`:       "",
		`{`:                                 "",
		`{"actions":[{"a":[` + strings.Repeat("1e20,", 2000) + `1]}]}`: "",
	} {
		require.Equal(t, want, string(embodied([]byte(reported))), "%.80s", reported)
	}
	require.Nil(t, embodied(nil))
}

// An executed command leaves the reported state, a day further at least; a state that is none of the
// town's fails the attempt.
func TestReported(t *testing.T) {
	t.Parallel()
	expected := town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, Day: 4, TownID: "t",
		SideQuests: []town.SideQuest{}, Projects: []town.Project{}})
	state := func(day, townID string) string {
		return `{"schemaVersion":"snapshot.v1","day":` + day + `,"townId":"` + townID +
			`","mission":null,"sideQuests":[],
			"pressure":{"threat":0,"scarcity":0,"hope":0.5,"dread":0},"projects":[],"latestNetherEvent":null}`
	}
	after, failed := reported(expected, nil)
	require.Nil(t, failed)
	require.Equal(t, expected, after)
	for day, want := range map[string]int64{"0": 4, "3": 4, "4": 4, "5": 5, "900": 900} {
		after, failed := reported(expected, []byte(state(day, "t")))
		require.Nil(t, failed)
		require.Equal(t, want, after.Epoch(), "the town's day moves on, and never back")
		again, err := town.Parse(after.Canonical, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, again.Hash, after.Hash, "it has the hash of its bytes")
		require.InDelta(t, 0.5, after.Snapshot.Pressure.Hope, 0)
	}
	for _, bad := range []string{`{}`, `null`, `[]`, state("-1", "t"), state("4", "other"),
		state("4", "t") + "x"} {
		_, failed := reported(expected, []byte(bad))
		require.NotNil(t, failed, bad)
		require.Equal(t, apply.ReasonPluginStateInvalid, failed.Reason)
		require.True(t, failed.Retryable)
	}
}
