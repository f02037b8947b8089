package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// SIGHUP reads the access file anew: rights that changed hold, connections of users that are gone
// end, others stay; a file that is not valid changes nothing, and says so.
func TestTheAccessFileIsReloaded(t *testing.T) {
	t.Parallel()
	const (
		jon  = `{"name": "jon", "role": "agent", "passwordFile": "pw"}`
		ida  = `{"name": "ida", "role": "observer", "passwordFile": "pw"}`
		lea  = `{"name": "lea", "role": "agent", "passwordFile": "pw"}`
		more = `{"name": "mara", "role": "agent", "passwordFile": "pw", "read": ["town-quiet"]}`
	)
	file := accessFile(t, mara+","+jon+","+ida)
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world-file", worldFile(t),
		"--access", file, "--log-format", "json")
	require.NotEmpty(t, p.url, "%s", p.stderr)
	as := func(name, password string) (*nats.Conn, error) {
		nc, err := nats.Connect(p.url, nats.UserInfo(name, password),
			nats.CustomInboxPrefix("_INBOX_"+name),
			nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
			nats.Timeout(20*time.Second))
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return nc, err
	}
	must := func(name, password string) *nats.Conn {
		nc, err := as(name, password)
		require.NoError(t, err, "%s: %s", name, p.stderr)
		return nc
	}
	read := func(nc *nats.Conn) string {
		reply, err := nc.Request("worldengine.v1.main.town.get",
			[]byte(`{"townId":"town-threatened"}`),
			20*time.Second)
		require.NoError(t, err)
		return string(reply.Data)
	}
	reload := func(users, says string) { p.reload(file, users, says) }
	agent, gone, other := must("mara", sentinel), must("jon", sentinel), must("ida", sentinel)
	require.Contains(t, read(agent), "snapshotHash")
	left := make(chan struct{})
	gone.SetClosedHandler(func(*nats.Conn) { close(left) })

	reload(`{"users": [`+mara+`, {"name": "x"`,
		`"level":"ERROR","msg":"the access file was not reloaded`)
	require.Contains(t, read(agent), "snapshotHash")
	must("jon", sentinel)

	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "pw2"),
		[]byte("another secret\n"), 0o600))
	reload(`{"users": [`+more+","+ida+","+strings.Replace(lea, `"pw"`, `"pw2"`, 1)+`]}`,
		`"level":"INFO","msg":"audit: the access file was reloaded".*"added":\["lea"\],"removed":\["jon"\],"changed":\["mara"\],"connectionsEnded":3`)
	// A request that is written to a connection which ends is lost, so none is made before.
	require.Eventually(t, func() bool { return agent.Stats().Reconnects > 0 && agent.IsConnected() },
		30*time.Second, time.Millisecond, "%s", p.stderr)
	require.Contains(t, read(agent), "FORBIDDEN", "it came back by itself, with other rights")
	require.Contains(t, read(other), "snapshotHash")
	require.Zero(t, other.Stats().Reconnects, "nothing of this user changed")
	_, err := as("jon", sentinel)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	select {
	case <-left: // refused when it came back
	case <-time.After(30 * time.Second):
		require.Fail(t, "the connection of a user who is gone stays")
	}
	_, err = as("lea", sentinel)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	must("lea", "another secret")

	reload(`{"users": [`+more+","+ida+","+lea+`]}`, `"changed":\["lea"\]`)
	_, err = as("lea", "another secret")
	require.ErrorIs(t, err, nats.ErrAuthorization, "a password that was right before")
	must("lea", sentinel)
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err)
	require.NotContains(t, p.stderr.String(), sentinel)
}

// An access file, or a file that it names, that never ends or is a pipe without end changes nothing:
// the server says so, goes on and ends when it is told to.
func TestReload_EndlessFiles(t *testing.T) {
	t.Parallel()
	file := accessFile(t, mara)
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world-file", worldFile(t), "--access", file)
	require.NotEmpty(t, p.url, "%s", p.stderr)
	for _, endless := range []string{file, filepath.Join(filepath.Dir(file), "pw")} {
		was, err := os.ReadFile(endless)
		require.NoError(t, err)
		require.NoError(t, os.Remove(endless))
		require.NoError(t, os.Symlink("/dev/zero", endless))
		p.hangup("more than 4194304 bytes")
		require.NoError(t, os.Remove(endless))
		require.NoError(t, exec.Command("mkfifo", endless).Run())
		writer, err := os.OpenFile(endless, os.O_RDWR, 0)
		require.NoError(t, err)
		p.hangup("i/o timeout")
		require.NoError(t, writer.Close())
		require.NoError(t, os.Remove(endless))
		require.NoError(t, os.WriteFile(endless, was, 0o600))
	}
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err)
}

// reload gives a server other users, and waits until its log says something once more.
func (p *program) reload(file, users, says string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(file, []byte(users), 0o600))
	p.hangup(says)
}

// hangup sends SIGHUP, and waits until the server's log says something once more.
func (p *program) hangup(says string) {
	p.t.Helper()
	times := func() int {
		return len(regexp.MustCompile(says).FindAllString(p.stderr.String(), -1))
	}
	before := times()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(p.t, func() bool {
		return times() > before
	}, 30*time.Second, 10*time.Millisecond, "%s", p.stderr)
}

// A reload by the supervisor ends no server that has nothing to read again.
func TestSIGHUPWithoutAnAccessFile(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(),
		"--world-file", worldFile(t))
	require.NotEmpty(t, p.url, "%s", p.stderr)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), "nothing to read again: there is no access file")
	}, 30*time.Second, 10*time.Millisecond, "%s", p.stderr)
	reply, err := p.connect().Request("worldengine.v1.main.town.get",
		[]byte(`{"townId":"town-threatened"}`), 20*time.Second)
	require.NoError(t, err)
	require.Contains(t, string(reply.Data), "snapshotHash")
	p.end(syscall.SIGTERM)
	require.NoError(t, p.err)
}
