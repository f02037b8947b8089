package game

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
)

// An execution keeps the fate of its requests.
func TestExecution_Fate(t *testing.T) {
	t.Parallel()
	var x Execution
	for _, step := range []struct{ learns, fate apply.Arrival }{
		{apply.MayArrive, apply.MayArrive}, {apply.NotArrived, apply.NotArrived},
		{apply.MayHaveArrived, apply.MayHaveArrived}, {apply.NotArrived, apply.MayHaveArrived},
	} {
		x.sends()
		x.learn(step.learns)
		require.Equal(t, step.fate, x.fate)
	}
}
