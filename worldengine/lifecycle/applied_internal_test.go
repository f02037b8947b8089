package lifecycle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
)

// The end of an attempt without artifacts has the bytes of the state alone.
func TestWhatAnAttemptLeaves(t *testing.T) {
	t.Parallel()
	hash, epoch := strings.Repeat("a", 64), int64(7)
	state := &handoff.WorldState{SnapshotHash: &hash, DecisionEpoch: &epoch}
	for i, left := range []apply.Artifacts{
		{}, {LeftOut: 2}, {References: []jsontext.Value{}},
		{References: []jsontext.Value{[]byte(`{"uri":"a"}`)}, LeftOut: 1},
	} {
		want, err := json.Marshal(appliedPayload{*state, left})
		require.NoError(t, err)
		got, err := json.Marshal(applied(state, left))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), fmt.Sprint(i))
	}
}
