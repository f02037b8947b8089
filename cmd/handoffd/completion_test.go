package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Completion knows the flags of serve, which runs if no command is named.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--check-c": "--check-config\n", "serve --sync a": "always\n", "re": "restore\n",
	} {
		var out, log bytes.Buffer
		args := append([]string{"completion", "bash", "--"}, strings.Fields(line)...)
		require.Equal(t, 0, run(t.Context(), args, &out, &log), log.String())
		assert.Equal(t, want, out.String(), line)
	}
}
