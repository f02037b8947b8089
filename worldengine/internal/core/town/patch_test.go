package town_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/town"
)

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
