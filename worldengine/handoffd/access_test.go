package handoffd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

// sentinel is the password of users in access files. It may be in no output.
const sentinel = "sentinel-of-a-secret"

// accessFile writes an access file whose passwords are the sentinel.
func accessFile(t *testing.T, users string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte(sentinel+"\n"), 0o600))
	file := filepath.Join(dir, "access.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"users": [`+users+`]}`), 0o600))
	return file
}

const mara = `{"name": "mara", "role": "agent", "passwordFile": "pw", "towns": ["town-threatened"]}`

// connectAs connects a user, who comes back by itself.
func (p *program) connectAs(name, password string) (*nats.Conn, error) {
	nc, err := natstest.TryDial(p.url, nats.UserInfo(name, password),
		nats.CustomInboxPrefix("_INBOX_"+name), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	if err == nil {
		p.t.Cleanup(nc.Close)
	}
	return nc, err
}

// user is connectAs for a user who may connect.
func (p *program) user(name, password string) *nats.Conn {
	p.t.Helper()
	nc, err := p.connectAs(name, password)
	require.NoError(p.t, err, "%s: %s", name, p.stderr)
	return nc
}

// hangup sends SIGHUP, and waits until the server's log has one more match of a pattern.
func (p *program) hangup(pattern string) {
	p.t.Helper()
	times := func() int {
		return len(regexp.MustCompile(pattern).FindAllString(p.stderr.String(), -1))
	}
	before := times()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(p.t, func() bool {
		return times() > before
	}, 30*time.Second, 10*time.Millisecond, "%s", p.stderr)
}

// SIGHUP reads the access file anew: rights that changed hold, connections of users that are gone
// end, others stay; a file that is not valid changes nothing, and is named in the log.
func TestAccess_Reload(t *testing.T) {
	t.Parallel()
	const (
		jon  = `{"name": "jon", "role": "agent", "passwordFile": "pw"}`
		ida  = `{"name": "ida", "role": "observer", "passwordFile": "pw"}`
		lea  = `{"name": "lea", "role": "agent", "passwordFile": "pw2"}`
		more = `{"name": "mara", "role": "agent", "passwordFile": "pw", "read": ["town-quiet"]}`
	)
	file := accessFile(t, mara+","+jon+","+ida)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "pw2"), []byte("another secret\n"), 0o600))
	p := serve(t, "--world-file", worldFile(t), "--access", file, "--log-format", "json")
	town := []byte(`{"townId":"town-threatened"}`)
	reload := func(users, pattern string) {
		require.NoError(t, os.WriteFile(file, []byte(users), 0o600))
		p.hangup(pattern)
	}
	refuses := func(name, password string) {
		_, err := p.connectAs(name, password)
		require.ErrorIs(t, err, nats.ErrAuthorization, name)
	}
	refuses("", "")
	agent, gone, other := p.user("mara", sentinel), p.user("jon", sentinel), p.user("ida", sentinel)

	reload(`{"users": [`+mara+`, {"name": "x"`, `"level":"ERROR","msg":"the access file was not reloaded`)
	require.Empty(t, errorOf(t, agent, wire.TownGet, town))
	p.user("jon", sentinel)

	reload(`{"users": [`+more+","+ida+","+lea+`]}`,
		`"level":"INFO","msg":"audit: the access file was reloaded".*"added":\["lea"\],"removed":\["jon"\],"changed":\["mara"\],"connectionsEnded":3`)
	// A request that is written to a connection which ends is lost, so none is made before.
	require.Eventually(t, func() bool { return agent.Stats().Reconnects > 0 && agent.IsConnected() },
		30*time.Second, time.Millisecond, "%s", p.stderr)
	require.Equal(t, "FORBIDDEN", errorOf(t, agent, wire.TownGet, town), "with other rights")
	require.Empty(t, errorOf(t, other, wire.TownGet, town))
	require.Zero(t, other.Stats().Reconnects, "nothing of this user changed")
	require.Eventually(t, gone.IsClosed, 30*time.Second, time.Millisecond, "refused when it came back")
	refuses("jon", sentinel)
	refuses("lea", sentinel)
	p.user("lea", "another secret")

	reload(`{"users": [`+more+","+ida+","+strings.Replace(lea, "pw2", "pw", 1)+`]}`, `"changed":\["lea"\]`)
	refuses("lea", "another secret")
	p.user("lea", sentinel)
	p.stop()
	require.NotContains(t, p.stderr.String(), sentinel)
}

// An access file that never ends, or a file that it names and that is a pipe without end, changes
// nothing: the server logs it, goes on, and ends when it is told to. Without an access file SIGHUP
// does nothing.
func TestAccess_ReloadOfNoFile(t *testing.T) {
	t.Parallel()
	file := accessFile(t, mara)
	p := serve(t, "--access", file)
	pipe, kept := filepath.Join(filepath.Dir(file), "pw"), file+".kept"
	require.NoError(t, os.Rename(file, kept))
	require.NoError(t, os.Symlink("/dev/zero", file))
	p.hangup("more than 4194304 bytes")
	require.NoError(t, os.Rename(kept, file))
	require.NoError(t, os.Remove(pipe))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	p.hangup("i/o timeout")
	p.stop()

	p = serve(t)
	p.hangup("nothing to read again: there is no access file")
	ask[struct{}](t, p.connect(), wire.TownList, members{})
	p.stop()
}
