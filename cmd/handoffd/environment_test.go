package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A variable that no flag has is named, in the format of the log; those that a flag has are not.
func TestAMisspeltVariableIsNamed(t *testing.T) {
	t.Parallel()
	p := launch(t, []string{
		"HANDOFFD_LISTEN=127.0.0.1:0", "HANDOFFD_DATA=" + t.TempDir(), "HANDOFFD_LOG_FORMAT=json",
		"HANDOFFD_HISTORY=5000",
		"HANDOFFD_PLUGIN_DEADLINE=5s",
	})
	require.NotEmpty(t, p.url, "%s", p.stderr)
	p.end(syscall.SIGTERM)
	require.Regexp(t, `(?m)^\{.*"level":"WARN".*"variable":"HANDOFFD_HISTORY"\}$`,
		p.stderr.String())
	require.NotContains(t, p.stderr.String(), "HANDOFFD_PLUGIN_DEADLINE")
	require.NotContains(t, p.stderr.String(), "HANDOFFD_LISTEN")

	p = launch(t, []string{"HANDOFFD_HISTROY_PER_TOWN=5000"}, "--check-config", "--data",
		t.TempDir())
	<-p.ended
	require.Zero(t, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.stderr.String(), "variable=HANDOFFD_HISTROY_PER_TOWN")
}
