package cluster_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a node or an engine.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // as long as it is open, the process knows that somebody wants it
	ready chan struct{}
	ended chan struct{}
	err   error // of its end

	serving atomic.Bool // an engine's server is the writer, by its last line
}

// spawn starts this test binary in a role. Its log is shown when the test fails.
func spawn(t testing.TB, logs, role, name, argument string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{
		t: t, name: name, cmd: exec.Command(self), ready: make(chan struct{}),
		ended: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), asRole+"="+role, roleArgument+"="+argument)
	log, err := os.OpenFile(filepath.Join(logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	require.NoError(t, err)
	p.cmd.Stderr = log
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		defer log.Close()
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			switch lines.Text() {
			case "ready":
				close(p.ready)
			case serving, standby:
				p.serving.Store(lines.Text() == serving)
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// signal sends a signal and waits for the end.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("%s does not end", p.name)
	}
}

// showLogs prints the end of each log where the test has failed.
func showLogs(t testing.TB, dir string) {
	if !t.Failed() {
		return
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		lines := strings.Split(string(data), "\n")
		t.Logf("%s:\n%s", filepath.Base(file), strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}
