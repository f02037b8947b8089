package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGenerate_TreeIsUpToDate(t *testing.T) {
	t.Parallel()
	for name, want := range generate("../../..") {
		got, err := os.ReadFile(filepath.Join("../../..", name))
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is stale: run go generate ./worldengine/internal/gen", name)
	}
}
