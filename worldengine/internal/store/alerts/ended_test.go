package alerts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/protocol"
)

// An alert ends another one if it says that all is well again.
func TestEnded(t *testing.T) {
	t.Parallel()
	for _, spec := range protocol.Alerts() {
		code := string(spec.Code)
		good := strings.HasSuffix(code, "_RECOVERED") || strings.HasSuffix(code, "_RETURNED")
		require.Equal(t, good, resolves[spec.Code] != "", code)
	}
}
