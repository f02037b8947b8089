package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/sourcetest"
)

// Each constant of type Kind has its row, in the same order. logtest.Facts compares the rows with records.
func TestKind_Spec(t *testing.T) {
	t.Parallel()
	var rows []Kind
	for _, spec := range kindSpecs {
		rows = append(rows, spec.Kind)
		require.Equal(t, spec, spec.Kind.Spec())
		require.True(t, spec.Kind.Known())
	}
	require.Equal(t, sourcetest.Constants[Kind](t, "kinds.go", "Kind"), rows)
	require.Zero(t, Kind("unheard-of").Spec())
	require.False(t, Kind("unheard-of").Known())
}
