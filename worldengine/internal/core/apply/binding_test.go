package apply

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/testkit/sourcetest"
)

// Each constant of type Binding has its row, in the same order, with all facts that the engine asks for.
func TestBinding_Spec(t *testing.T) {
	t.Parallel()
	require.Equal(t, sourcetest.Constants[Binding](t, "binding.go", "Binding"), Bindings())
	require.Zero(t, Binding("unheard-of").Spec())
	for _, b := range Bindings() {
		spec := b.Spec()
		require.Equal(t, b, spec.Binding)
		if spec.BuiltIn {
			require.Equal(t, BindingSpec{Binding: b, BuiltIn: true}, spec)
			continue
		}
		require.NotEmpty(t, spec.Game)
		require.True(t, MayBeApplied(spec.InDoubt))
		require.Subset(t, spec.Failures, []handoff.ReasonCode{spec.InDoubt, ReasonGameUnavailable})
	}
}
