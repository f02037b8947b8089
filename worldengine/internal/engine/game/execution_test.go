package game

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
)

// An execution keeps the reach of its requests.
func TestExecution_Reach(t *testing.T) {
	t.Parallel()
	var x Execution
	for _, step := range []struct{ learns, known apply.Reach }{
		{apply.ReachUnknown, apply.ReachUnknown}, {apply.Unreached, apply.Unreached},
		{apply.MayHaveReached, apply.MayHaveReached}, {apply.Unreached, apply.MayHaveReached},
	} {
		x.noteSent()
		x.noteReach(step.learns)
		require.Equal(t, step.known, x.reach)
	}
}

// Each binding has an asker, unless the built-in rules apply its commands.
func TestAskers(t *testing.T) {
	t.Parallel()
	for _, binding := range apply.Bindings() {
		require.Equal(t, binding.Spec().BuiltIn, askers[binding] == nil, binding)
	}
}
