package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
)

const applyID = "handoff_5feb3aa3bfb4485a11acfc3cf78a89958798e5411a1cc4893273b5092de581ea"

// FuzzParseAnswer: no answer of a plugin makes ParseAnswer panic. An accepted one is the command's,
// has one of the four statuses, and comes back from its bytes.
func FuzzParseAnswer(f *testing.F) {
	head := `{"schemaVersion":"command-applied.v1","applyId":"` + applyID + `","status":`
	for _, seed := range []string{
		head + `"applied"}`, head + `"applied","snapshot":{"day":1e0,"townId":"\u202e"}}`,
		head +
			`"refused","reasonCode":"CHUNK_NOT_LOADED","message":"Nobody is near.","retryable":true}`,
		head + `"busy","retryAfterMs":2.5e2}`, head + `"in-progress","retryAfterMs":3600001}`,
		head + `"applied","status":"refused"}`, head + `"APPLIED"}`, head[:60], `{}`,
		``, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := apply.ParseAnswer(data, applyID, schemas.Limits{})
		if err != nil {
			require.Equal(t, apply.GameAnswer{}, a)
			return
		}
		require.Equal(t, applyID, a.ApplyID)
		require.Contains(t, []apply.Status{apply.Applied, apply.Refused, apply.Busy,
			apply.InProgress}, a.Status)
		again, err := a.MarshalWire()
		require.NoError(t, err)
		same, err := apply.ParseAnswer(again, applyID, schemas.Limits{})
		require.NoError(t, err)
		require.Equal(t, a, same)
	})
}

// FuzzParseCommand: no request makes ParseCommand panic, and an accepted one conforms.
func FuzzParseCommand(f *testing.F) {
	source, err := schemas.Source(schemas.CommandApply)
	require.NoError(f, err)
	tree, err := schemas.Decode(source, schemas.Limits{})
	require.NoError(f, err)
	for _, example := range tree.(map[string]any)["examples"].([]any) {
		f.Add(handoff.AppendCanonical(nil, example))
	}
	f.Add([]byte(`{"deadline":"2026-02-31T10:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := apply.ParseCommand(data, schemas.Limits{})
		if err != nil {
			require.Nil(t, c)
			return
		}
		require.NotEmpty(t, c.ApplyID)
		require.NotNil(t, c.Snapshot)
		require.NotNil(t, c.ExpectedSnapshot)
	})
}
