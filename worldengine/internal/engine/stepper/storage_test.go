package stepper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/testkit/sourcetest"
)

// Each purpose of the machine has its row, so that none gets the least room by mistake.
func TestPurposeStorage_Complete(t *testing.T) {
	t.Parallel()
	declared := sourcetest.Constants[machine.Purpose](t, "../../core/machine/purpose.go", "Purpose")
	for _, purpose := range declared {
		require.Contains(t, purposeStorage, purpose)
	}
	require.Len(t, purposeStorage, len(declared))
}
