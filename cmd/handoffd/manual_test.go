package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Completion and man pages know the flags of serve, which runs where no command is named, with
// their variables.
func TestCompletionAndManPages(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"completion", "bash"}, &out, &log), log.String())
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, out.Bytes(), 0o600))
	for line, want := range map[string]string{"--check-c": "--check-config",
		"serve --sync a": "always", "re": "restore"} {
		got, err := exec.Command("bash", append([]string{"--norc", "-c", `source "$1"; shift
COMP_WORDS=(handoffd "$@") COMP_CWORD=$#; _handoffd; printf '%s\n' "${COMPREPLY[@]}"`,
			"bash", script},
			strings.Fields(line)...)...).CombinedOutput()
		require.NoError(t, err, string(got))
		assert.Equal(t, want+"\n", string(got), line)
	}
	dir := t.TempDir()
	require.Equal(t, 0, run(t.Context(), []string{"man", dir}, &out, &log), log.String())
	page, err := os.ReadFile(filepath.Join(dir, "handoffd-serve.1"))
	require.NoError(t, err)
	assert.Contains(t, string(page), "\n.B \\-\\-listen=")
	assert.Contains(t, string(page), "($HANDOFFD_LISTEN)")
}
