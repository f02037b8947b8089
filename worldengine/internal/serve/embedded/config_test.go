package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/cmdline/cmdlinetest"
	"worldengine/worldengine/internal/serve/embedded"
)

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, 6, cmdlinetest.RequireDefaults(t, embedded.Config.WithDefaults))
}
