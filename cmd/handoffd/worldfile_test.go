package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A signal ends the program while it waits for a world file that nobody writes.
func TestServe_WorldFileWithoutWriter(t *testing.T) {
	t.Parallel()
	for name, flag := range map[string]string{"serve": "--sync=interval", "check": "--check-config"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "world.json")
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			p := spawn(t, nil, "--listen=127.0.0.1:0", "--http=off", "--data="+t.TempDir(),
				"--world-file="+pipe, flag)
			var writer *os.File
			require.Eventually(t, func() (open bool) {
				var err error
				writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				return err == nil // there is a reader
			}, 30*time.Second, 10*time.Millisecond)
			defer writer.Close()
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			p.ends()
			require.Contains(t, p.stderr.String(), pipe)
		})
	}
}

// A world file without an end is refused at its bound.
func TestServe_WorldFileWithoutEnd(t *testing.T) {
	t.Parallel()
	p := spawn(t, nil, "--listen=127.0.0.1:0", "--http=off", "--data="+t.TempDir(),
		"--world-file=/dev/zero")
	p.ends()
	require.Contains(t, p.stderr.String(), "world file /dev/zero: more than 64 MiB")
	require.Contains(t, p.stderr.String(), "handoffctl town put")
}

// ends waits until the program has ended by itself.
func (p *program) ends() {
	p.t.Helper()
	select {
	case <-p.ended:
		require.Positive(p.t, p.cmd.ProcessState.ExitCode(), "%v: %s", p.err, p.stderr)
	case <-time.After(30 * time.Second):
		p.t.Fatalf("handoffd goes on: %s", p.stderr)
	}
}
