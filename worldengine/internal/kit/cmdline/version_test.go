package cmdline

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The image is built without .git, so its build gets its version.
func TestVersion_Image(t *testing.T) {
	dockerfile, err := os.ReadFile("../../../../deploy/docker/Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), "-X worldengine/worldengine/internal/kit/cmdline.stamped=$VERSION")
	require.NotEmpty(t, Version())
	stamped = "v1.2.3"
	defer func() { stamped = "" }()
	require.Equal(t, "v1.2.3", Version())
}
