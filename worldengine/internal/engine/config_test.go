package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/cmdline/cmdlinetest"
	"worldengine/worldengine/internal/store/worldsettings"
)

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	compared := cmdlinetest.RequireDefaults(t, func(c Config) Config {
		c, err := c.withDefaults()
		require.NoError(t, err)
		c.Settings = worldsettings.Settings{} // the flags' default is the world's own setting
		return c
	})
	require.Greater(t, compared, 10)
}
