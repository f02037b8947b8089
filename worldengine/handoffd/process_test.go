package handoffd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/testkit/natstest"
)

// These variables make the test binary another program, so that tests can start, stop and kill a
// real process: handoffd, or a NATS server with a configuration file.
const (
	asHandoffd = "HANDOFFD_TEST_AS_PROGRAM"
	asNATS     = "HANDOFFD_TEST_AS_NATS"
)

// In the environment of launch, onSmallDisk names a directory that becomes a small file system of
// the process alone, and onReadOnlyDisk one that the process cannot write to.
const (
	onSmallDisk    = "HANDOFFD_TEST_ON_SMALL_DISK"
	onReadOnlyDisk = "HANDOFFD_TEST_ON_READ_ONLY_DISK"
)

func TestMain(m *testing.M) {
	if os.Getenv("HANDOFFD_HTTP") == "" { // the default is one port for all
		os.Setenv("HANDOFFD_HTTP", "off")
	}
	if os.Getenv(asHandoffd) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
	}
	if config := os.Getenv(asNATS); config != "" {
		natstest.Collect()
		if err := serveNATS(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	natstest.Main(m, 20)
}

// serveNATS is nats-server with a configuration file; it handles its signals itself.
func serveNATS(config string) error {
	options, err := natsserver.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	// Its least from a file is 30 s, for as many clients as the tests do not have.
	options.LameDuckDuration, options.LameDuckGracePeriod = 5*time.Second, time.Second
	ns, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	ns.Start()
	ns.WaitForShutdown()
	return nil
}

// command returns the command that runs the program self.
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

// program is a process of a test.
type program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *natstest.Buffer
	state  atomic.Pointer[string] // "ready" or "standby", by the last such line
	ended  chan struct{}          // closed when the process has ended
	err    error                  // of its end
	// Once there is a state: the URL of NATS, and the lines before.
	url  string
	said []string
}

// dataArgs are the arguments of a server with a data directory, and more.
func dataArgs(data string, more ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--data", data}, more...)
}

// serve launches handoffd with a data directory of its own, which must get ready.
func serve(t testing.TB, args ...string) *program {
	t.Helper()
	p := launch(t, nil, dataArgs(t.TempDir(), args...)...)
	require.NotEmpty(t, p.url, "%s", p.stderr)
	return p
}

// refused launches handoffd, which must end with a status before it serves, and returns its log.
func refused(t testing.TB, status int, env []string, args ...string) string {
	t.Helper()
	p := launch(t, env, args...)
	require.Nil(t, p.state.Load(), "it serves")
	require.Equal(t, status, p.cmd.ProcessState.ExitCode(), "%v: %s", p.err, p.stderr)
	return p.stderr.String()
}

// launch starts handoffd with args and waits for its ready line, or for its end. The process ends
// with the test, however that ends.
func launch(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	p := spawn(t, env, args...)
	p.await("ready")
	return p
}

// await waits until the server is in a state, or for the end of the process.
func (p *program) await(state string) {
	p.t.Helper()
	for late := time.After(time.Minute); !p.is(state); {
		select {
		case <-p.ended:
			return
		case <-late:
			p.t.Fatalf("handoffd is not %s: %s", state, p.stderr)
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *program) is(state string) bool {
	now := p.state.Load()
	return now != nil && *now == state
}

// spawn is launch without the wait. An environment that begins with asNATS makes it a NATS server.
func spawn(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{
		t: t, cmd: command(self, env, args), stderr: &natstest.Buffer{}, ended: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), env...)
	if len(env) == 0 || !strings.HasPrefix(env[0], asNATS+"=") {
		p.cmd.Env = append(p.cmd.Env, asHandoffd+"=1")
	}
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p.stderr
	started := make(chan error)
	go p.follow(started)
	require.NoError(t, <-started)
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// follow runs the process from its start to its end. The process gets SIGKILL when this thread
// ends, and so when the tests do without a cleanup, as in the panic of go test -timeout.
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
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		state, url, _ := strings.Cut(lines.Text(), " ")
		isState := state == "ready" || state == "standby"
		if p.state.Load() == nil {
			if isState {
				p.url = url
			} else {
				p.said = append(p.said, lines.Text())
			}
		}
		if isState {
			p.state.Store(&state)
		}
	}
	p.err = p.cmd.Wait()
}

// printed returns the lines before the first state.
func (p *program) printed() string { return strings.Join(p.said, "\n") }

// itself is no signal: the process ends by itself.
const itself = syscall.Signal(0)

// end sends a signal and waits for the end of the process.
func (p *program) end(signal syscall.Signal) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Errorf("handoffd does not end: %s", p.stderr)
	}
}

// stop ends the process in order.
func (p *program) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
	require.NoError(p.t, p.err, "%s", p.stderr)
}

// logs waits until the log has a text.
func (p *program) logs(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		return strings.Contains(p.stderr.String(), text)
	}, time.Minute, 10*time.Millisecond, "%s: %s", text, p.stderr)
}

func (p *program) connect() *nats.Conn {
	p.t.Helper()
	nc, err := natstest.TryDial(p.url, nats.NoReconnect())
	require.NoError(p.t, err, "%s", p.stderr)
	p.t.Cleanup(nc.Close)
	return nc
}

// operator returns a connection of the operator to the server that nc is connected to.
func operator(t testing.TB, nc *nats.Conn) *nats.Conn {
	t.Helper()
	var streams *nats.Conn
	var err error
	for range 3 { // on a busy machine, NATS may ping a client that is still signing in, which gives up
		if streams, err = (natsconn.Options{}).ConnectOperator(nc.ConnectedUrl(), "operator"); err == nil {
			break
		}
	}
	require.NoError(t, err)
	t.Cleanup(streams.Close)
	return streams
}

func worldFile(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../testdata/worlds/frontier.json")
	require.NoError(t, err)
	return path
}
