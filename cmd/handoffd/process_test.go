package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/natstest"
)

// onSmallDisk, in the environment for launch, names a directory where handoffd gets a small file
// system of its own, and onReadOnlyDisk one that it cannot write to.
const (
	onSmallDisk    = "HANDOFFD_TEST_ON_SMALL_DISK"
	onReadOnlyDisk = "HANDOFFD_TEST_ON_READ_ONLY_DISK"
)

// command returns what runs the program self.
func command(self string, env, args []string) *exec.Cmd {
	mounts := map[string]string{
		onSmallDisk:    "mount -t tmpfs -o size=" + smallDisk + ` tmpfs "$0"`,
		onReadOnlyDisk: `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"`,
	}
	for _, v := range env {
		name, dir, _ := strings.Cut(v, "=")
		if mount := mounts[name]; mount != "" {
			return exec.Command("unshare",
				append([]string{"-rm", "sh", "-c", mount + ` && exec "$@"`, dir, self}, args...)...)
		}
	}
	return exec.Command(self, args...)
}

// program is a handoffd process.
type program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *natstest.Buffer
	url    string
	said   []string      // the lines before ready, or standby
	states chan string   // "ready" and "standby", one after another
	ended  chan struct{} // closed when the process has ended
	err    error         // of its end
}

// launch starts handoffd with args and waits for its ready line, or for its end. The process ends
// with the test, however that ends.
func launch(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	p := spawn(t, env, args...)
	p.await("ready", 30*time.Second)
	return p
}

// await waits until the server prints that it is in a state, or for the end of the process.
func (p *program) await(state string, within time.Duration) {
	p.t.Helper()
	for late := time.After(within); ; {
		select {
		case now := <-p.states:
			if now == state {
				return
			}
		case <-p.ended:
			return
		case <-late:
			p.t.Fatalf("handoffd is not %s: %s", state, p.stderr)
		}
	}
}

// spawn is launch without the wait.
func spawn(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{
		t: t, cmd: command(self, env, args), stderr: &natstest.Buffer{},
		states: make(chan string, 1024), ended: make(chan struct{}),
	}
	p.cmd.Env = append(append(os.Environ(), asHandoffd+"=1"), env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.stderr
	started := make(chan error)
	go p.follow(started)
	require.NoError(t, <-started)
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// follow runs the process from its start to its end. It gets SIGKILL when this thread ends, and so
// when the tests do without a cleanup, as in the panic of go test -timeout; a process that is
// stopped gets it too.
func (p *program) follow(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	defer close(p.ended)
	lines := bufio.NewScanner(stdout)
	for said := false; lines.Scan(); {
		state, url, _ := strings.Cut(lines.Text(), " ")
		switch {
		case state == "ready" || state == "standby":
			if !said {
				p.url, said = url, true
			}
			p.states <- state
		case !said:
			p.said = append(p.said, lines.Text())
		}
	}
	p.err = p.cmd.Wait()
}

// awaitPoint waits until the process has killed itself at the point that it was given.
func (p *program) awaitPoint() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("the point is not reached: %s", p.stderr)
	}
}

// end sends a signal and waits for the end of the process.
func (p *program) end(signal syscall.Signal) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Errorf("handoffd does not end: %s", p.stderr)
	}
}

func (p *program) connect() *nats.Conn {
	p.t.Helper()
	nc, err := nats.Connect(p.url, nats.NoReconnect(), nats.Timeout(30*time.Second))
	require.NoError(p.t, err, "%s", p.stderr)
	p.t.Cleanup(nc.Close)
	return nc
}

// operator returns a connection of the operator to the server that nc is connected to.
func operator(t testing.TB, nc *nats.Conn) *nats.Conn {
	t.Helper()
	streams, err := natsconn.Options{}.ConnectOperator(nc.ConnectedUrl(), "operator")
	require.NoError(t, err)
	t.Cleanup(streams.Close)
	return streams
}

// leaves makes TestServersEndWithTheirTest end in the middle.
const leaves = "HANDOFFD_TEST_LEAVES"

// Servers do not outlive a test that ends without cleaning up: one that runs, one that is stopped,
// and one with a file system of its own.
func TestServersEndWithTheirTest(t *testing.T) {
	t.Parallel()
	if os.Getenv(leaves) != "" {
		disk := t.TempDir()
		servers := []*program{
			launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir()),
			launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir()),
		}
		if mayMount(t) {
			servers = append(servers, launch(t, []string{onSmallDisk + "=" + disk},
				"--listen", "127.0.0.1:0", "--data", disk))
		}
		require.NoError(t, servers[0].cmd.Process.Signal(syscall.SIGSTOP))
		for _, p := range servers {
			fmt.Println("left:", p.cmd.Process.Pid)
		}
		os.Exit(3)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	test := exec.Command(self, "-test.run", "^TestServersEndWithTheirTest$")
	test.Env = append(os.Environ(), leaves+"=1", "TMPDIR="+t.TempDir())
	out, err := test.Output()
	require.Error(t, err, "%s", out)
	var left []int
	for _, line := range strings.Split(string(out), "\n") {
		var pid int
		if _, err := fmt.Sscanf(line, "left: %d", &pid); err == nil {
			left = append(left, pid)
		}
	}
	require.GreaterOrEqual(t, len(left), 2, "%s", out)
	for _, pid := range left {
		require.Eventually(t, func() bool {
			return !runs(pid)
		}, 30*time.Second, 10*time.Millisecond, "%d runs on", pid)
	}
}

// runs says whether a process has not ended; one that nobody has waited for yet has.
func runs(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !bytes.Contains(status, []byte("State:\tZ"))
}
