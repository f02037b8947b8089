package town_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/town"
)

// Town, new state and expected hash decide about a put.
func TestState_MayReplace(t *testing.T) {
	t.Parallel()
	stateOfDay := func(day int64) town.State {
		return town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion,
			TownID: "t", Day: day})
	}
	none, monday, tuesday := town.State{}, stateOfDay(1), stateOfDay(2)
	const another = "another hash"
	for name, c := range map[string]struct {
		current, state town.State
		expected       string
		want           error
	}{
		"created":              {none, monday, "", nil},
		"created twice":        {monday, monday, "", town.ErrExists},
		"replaced":             {monday, tuesday, monday.Hash, nil},
		"replaced by the same": {monday, monday, monday.Hash, nil},
		"replaced where none":  {none, monday, monday.Hash, town.ErrUnknown},
		"replaced another": {monday, tuesday, another, &town.ConflictError{
			Expected: another, Actual: monday.Hash,
		}},
		"another, and earlier": {tuesday, monday, another, &town.ConflictError{
			Expected: another, Actual: tuesday.Hash,
		}},
		"put back to a day ago": {tuesday, monday, tuesday.Hash,
			&town.RegressionError{Day: 1, Current: 2}},
	} {
		require.Equal(t, c.want, c.state.CheckReplace(c.current, c.expected), name)
	}
	require.EqualError(t, &town.ConflictError{Expected: "e", Actual: "a"},
		"town: the town's snapshotHash is a, not the expected e")
	require.EqualError(t, &town.RegressionError{Day: 1, Current: 2},
		"town: the town has reached day 2, so it cannot be put back to day 1")
}
